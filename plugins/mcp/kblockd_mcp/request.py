"""The outgoing call: arguments as given, the effect key in the contract's place, mirrored headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kblockd.upstream.adapter import ToolCall

TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_OWN_HEADERS: Final = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "cookie", "host"}
    | {"last-event-id", "origin", "te", "trailer", "transfer-encoding", "upgrade", "user-agent"}
)
_RESERVED_META: Final = re.compile(r"(?:[A-Za-z0-9-]+\.)*(?:modelcontextprotocol|mcp)(?:\.[A-Za-z0-9-]+)*/")


class NotPossible(Exception):
    """The call cannot be built or the session cannot be opened; nothing was sent. ``code`` is an upper-case word."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The params of ``tools/call`` and the HTTP headers that only this request carries."""

    params: dict[str, Any]
    headers: Mapping[str, str]


def build(call: ToolCall) -> Outgoing:
    """Raises ``NotPossible`` if the effect key has no place (R205, R207). Baggage is not forwarded."""
    arguments: dict[str, Any] = dict(call.arguments)
    meta: dict[str, Any] = {name: call.trace[name] for name in TRACE_KEYS[:2] if call.trace.get(name)}
    headers: dict[str, str] = {}
    if call.effect_key and call.effect_key_in == "argument":
        if arguments.get(call.effect_key_name, call.effect_key) != call.effect_key:
            raise NotPossible("EFFECT_KEY_CONFLICT", f"the caller already set the argument {call.effect_key_name!r}")
        arguments[call.effect_key_name] = call.effect_key
    elif call.effect_key and call.effect_key_in == "meta":
        meta[_free_meta(call.effect_key_name)] = call.effect_key
    elif call.effect_key and call.effect_key_in == "header":
        headers[_free_header(call.effect_key_name)] = call.effect_key
    return Outgoing({"name": call.tool, "arguments": arguments, **({"_meta": meta} if meta else {})}, headers)


def authorization(credential: bytes | None) -> dict[str, str]:
    """The Authorization header for a credential (R177); raises ``NotPossible`` for bytes that a header cannot carry."""
    if credential is None:
        return {}
    text = credential.decode("latin-1")
    if not text or not text.isascii() or not text.isprintable():
        raise NotPossible("CREDENTIAL_UNUSABLE", "the credential is not a header value; check the file or variable")
    return {"authorization": text}


def _free_meta(name: str) -> str:
    if not name or name in (*TRACE_KEYS, "progressToken") or _RESERVED_META.match(name):
        raise NotPossible("EFFECT_KEY_NAME", f"_meta {name!r} belongs to the protocol; use a name of your own domain")
    return name


def _free_header(name: str) -> str:
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name) or lower in _OWN_HEADERS or lower.startswith("mcp-"):
        raise NotPossible("EFFECT_KEY_NAME", f"the header {name!r} belongs to the protocol; use another name")
    return name
