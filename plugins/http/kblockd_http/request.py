"""From a call and a template to one HTTP request. Nothing is completed, reordered or guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kblockd.domain import canonical
from kblockd.upstream.adapter import ToolCall
from kblockd_http.settings import PLACEHOLDER, RESERVED, Template

Json = Any


class NotSendable(Exception):
    """The call cannot be turned into a request; nothing was sent. ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of ``Exchange.send``."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    content: bytes


def build(base: bytes, template: Template, call: ToolCall, operation: str | None = None) -> Request:
    """Raises ``NotSendable``. ``base`` is the path of the upstream's URL; ``operation`` fills ``{operation}`` in the
    paths of polls and cancels."""
    arguments, headers = _placed(template, call)
    if operation is not None:
        arguments = {"operation": operation}
    rest = dict(arguments)
    path = _path(template, arguments, rest)
    query = {name: _text(name, rest.pop(name)) for name in template.query if name in rest}
    content = b""
    if template.method == "GET":
        query.update((name, _text(name, value)) for name, value in rest.items())
    elif rest or operation is None:
        content = canonical.canonical(rest)
        headers["content-type"] = "application/json"
    target = base.rstrip(b"/") + path.encode("ascii")
    if query:
        target += (
            b"?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items()).encode()
        )
    lines = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    return Request(template.method, target, lines, content)


def _placed(template: Template, call: ToolCall) -> tuple[dict[str, Json], dict[str, str]]:
    """Arguments and headers, with the effect key in the place that the contract defines."""
    arguments = dict(call.arguments)
    headers = {"accept": "application/json", "user-agent": "kblockd", **template.headers}
    headers.update({name: call.trace[name] for name in ("traceparent", "tracestate") if name in call.trace})
    if call.credential is not None:
        headers["authorization"] = call.credential.decode("latin-1")
    if not call.effect_key or call.effect_key_in == "none":
        return arguments, headers
    name = call.effect_key_name
    if call.effect_key_in == "header" and name.lower() not in RESERVED:
        headers[name] = call.effect_key
    elif call.effect_key_in == "argument" and name and name not in arguments:
        arguments[name] = call.effect_key
    else:
        raise NotSendable(
            "EFFECT_KEY_MISPLACED", f"the effect key cannot go into {call.effect_key_in} {name!r} of an HTTP request"
        )
    return arguments, headers


def _path(template: Template, arguments: Mapping[str, Json], rest: dict[str, Json]) -> str:
    """The path with its arguments, each fully escaped, so that no value can alter another part of the path."""

    def fill(match: Any) -> str:
        name = match[1]
        if name not in arguments:
            raise NotSendable("ARGUMENT_MISSING", f"the path needs the argument {name}")
        rest.pop(name, None)
        text = _text(name, arguments[name])
        if not text:
            raise NotSendable("ARGUMENT_NOT_SENDABLE", f"the argument {name} is empty, but is part of a path")
        return quote(text, safe="")

    path = PLACEHOLDER.sub(fill, template.path)
    if any(segment in (".", "..") for segment in path.split("/")):
        raise NotSendable("ARGUMENT_NOT_SENDABLE", "a segment of the path would be . or ..")
    return path


def _text(name: str, value: Json) -> str:
    """Scalars as JSON writes them, strings without quotes."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int | float):
        return canonical.canonical(value).decode()
    raise NotSendable("ARGUMENT_NOT_SENDABLE", f"the argument {name} is not a scalar, but is part of a path or query")
