"""All output: a JSON document, or text in which foreign content cannot control the terminal."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from rich.console import Console, RenderableType
from rich.text import Text

from kblockd.approvals.quoting import escape, hidden, visible_blanks
from kblockd.domain.clock import rfc3339

F = TypeVar("F", bound=Callable[..., Any])
_KEY: Final = "kblockd.json"
# These already hold JSON, which would be unreadable as a string inside the document.
_JSON_FIELDS: Final = frozenset(
    {"output_json", "arguments_json", "intent_json", "result_dsse", "receipt_dsse", "approval_dsse"}
)


def json_option(command: F) -> F:
    """Adds ``--json`` to a command; see ``is_json``."""

    def store(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            context.meta[_KEY] = True

    decorated: F = click.option(
        "--json", is_flag=True, expose_value=False, callback=store, help="One JSON document on standard output."
    )(command)
    return decorated


def is_json() -> bool:
    """Whether ``--json`` was given."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_KEY))


def emit(value: Any) -> None:
    """Prints one document: ASCII only, keys sorted."""
    click.echo(json.dumps(document(value), sort_keys=True, indent=2))


def emit_line(value: Any) -> None:
    """Prints one document on one line, for streams."""
    click.echo(json.dumps(document(value), sort_keys=True))


def show(*parts: RenderableType) -> None:
    """Prints to the terminal; markup in strings is not interpreted."""
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=False)
    for part in parts:
        console.print(part)


def plain(text: str) -> str:
    """``text`` with control, bidi, private and unassigned characters escaped."""
    return "".join(c if not hidden(c) else escape(c) for c in text)


def cell(text: str, style: str = "") -> Text:
    """A table cell: escaped, and never interpreted as markup."""
    return Text(plain(text), style=style)


def quoted(text: str) -> Text:
    """Foreign text in quotes that it cannot close, with runs of blanks made visible."""
    return Text(f'"{visible_blanks(escape(text))}"')


def pretty_json(data: bytes) -> str:
    """JSON, indented and in ASCII, with runs of blanks inside strings made visible; other bytes as a quoted string."""
    try:
        lines = json.dumps(json.loads(data), indent=2, sort_keys=True).split("\n")
        return "\n".join(_indented(line) for line in lines)
    except ValueError:
        return json.dumps(data.decode("utf-8", "replace"))


def _indented(line: str) -> str:
    text = line.lstrip(" ")
    return " " * (len(line) - len(text)) + visible_blanks(text)


def document(value: Any) -> Any:
    """Dataclasses, times and bytes as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        key = getattr(fields.pop("call", None), "key", None)
        members = {name.removesuffix("_json"): _member(name, member) for name, member in fields.items()}
        return members if key is None else {**members, "key": key}
    if isinstance(value, Mapping):
        return {str(key): document(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [document(member) for member in value]
    if isinstance(value, dt.datetime):
        return rfc3339(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _member(name: str, value: Any) -> Any:
    if name in _JSON_FIELDS and isinstance(value, bytes):
        try:
            return json.loads(value) if value else None
        except ValueError:
            return value.decode("utf-8", "backslashreplace")
    return document(value)


def show_progress(done: int, size: int) -> None:
    """A progress line, if standard error is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {size} records", nl=done == size, err=True)
