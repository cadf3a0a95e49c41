"""From a call and a template to one HTTP request. Nothing is completed, reordered or guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from kblockd.domain import canonical
from kblockd.upstream.adapter import Call
from kblockd_http.settings import PLACEHOLDER, RESERVED, Template

Json = Any


class NotSendable(Exception):
    """The call cannot be made into a request; nothing was sent. ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def build(base: httpx2.URL, template: Template, call: Call, operation: str | None = None) -> httpx2.Request:
    """Raises ``NotSendable``. ``operation`` fills ``{operation}`` in the paths of polls and cancels."""
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
    target = base.raw_path.rstrip(b"/") + path.encode("ascii")
    if query:
        target += (
            b"?" + "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items()).encode()
        )
    return httpx2.Request(template.method, base.copy_with(raw_path=target), headers=headers, content=content or None)


def _placed(template: Template, call: Call) -> tuple[dict[str, Json], dict[str, str]]:
    """Arguments and headers, with the effect key where the contract wants it."""
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
    """The path with its arguments, each escaped whole, so that no value reaches beyond its place."""

    def fill(match: Any) -> str:
        name = match[1]
        if name not in arguments:
            raise NotSendable("ARGUMENT_MISSING", f"the path needs the argument {name}")
        rest.pop(name, None)
        text = _text(name, arguments[name])
        if not text:
            raise NotSendable("ARGUMENT_NOT_SENDABLE", f"the argument {name} is empty and stands in a path")
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
    raise NotSendable("ARGUMENT_NOT_SENDABLE", f"the argument {name} is no scalar and stands in a path or a query")
