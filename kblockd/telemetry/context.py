"""W3C trace context: parsed strictly on the way in, generated on the way out, without baggage.

Source: W3C Trace Context, Recommendation (level 1), sections 3.2 traceparent and 3.3 tracestate; MCP, bare ``_meta``
keys; ``Call.trace`` of kblockd.upstream.adapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kblockd.telemetry.recorder import StageRow, Trace

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]*)?")
_MEMBER: Final = re.compile(
    r"([a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e])"
)
MAX_TRACEPARENT: Final = 512  # characters; only future versions are longer than 55
MAX_TRACESTATE: Final = 512  # characters; every vendor must be able to propagate this many
MAX_MEMBERS: Final = 32


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span: lowercase hex ids, its sampled flag, and its tracestate, which may be empty."""

    trace_id: str
    span_id: str
    sampled: bool
    tracestate: str = ""


def parse_traceparent(text: str) -> Parent | None:
    """None for anything invalid by the specification: the trace then starts here."""
    match = _TRACEPARENT.fullmatch(text) if len(text) <= MAX_TRACEPARENT else None
    if match is None:
        return None
    version, trace_id, span_id, flags, extension = match.groups()
    if version == "ff" or (version == "00" and extension is not None):
        return None
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return Parent(trace_id, span_id, bool(int(flags, 16) & 1))


def parse_tracestate(texts: Sequence[str]) -> str:
    """Several headers form one list; an invalid or over-long list becomes empty, and the traceparent still counts."""
    if sum(len(text) + 1 for text in texts) > MAX_TRACESTATE + 1:
        return ""
    members = [member.strip(" \t") for text in texts for member in text.split(",")]
    members = [member for member in members if member]
    matches = [_MEMBER.fullmatch(member) for member in members]
    keys = [match[1] for match in matches if match]
    if len(keys) != len(members) or len(set(keys)) != len(keys) or len(keys) > MAX_MEMBERS:
        return ""
    return ",".join(members)


def extract(metadata: Iterable[tuple[str, str | bytes]]) -> Parent | None:
    """The caller's span from gRPC metadata; None without exactly one valid traceparent. Never raises."""
    traceparents: list[str] = []
    tracestates: list[str] = []
    for key, value in metadata:
        if key == "traceparent" and isinstance(value, str):
            traceparents.append(value)
        elif key == "tracestate" and isinstance(value, str):
            tracestates.append(value)
    parent = parse_traceparent(traceparents[0]) if len(traceparents) == 1 else None
    if parent is None:
        return None
    return Parent(parent.trace_id, parent.span_id, parent.sampled, parse_tracestate(tracestates))


def outgoing(trace: Trace, row: StageRow | None = None) -> dict[str, str]:
    """``traceparent`` and ``tracestate`` for a call made inside ``row`` (default: the innermost open one); empty
    before the trace has ids.

    Adapters put the two keys into HTTP headers and bare into MCP ``_meta``. The flag is the sampling decision at the
    start; a trace that is exported later because of its outcome still contains the span that the upstream saw.
    """
    span_id = trace.span_id(row or trace.open_row())
    if not trace.trace_id or not span_id:
        return {}
    context = {"traceparent": f"00-{trace.trace_id}-{span_id}-{'01' if trace.sampled else '00'}"}
    if trace.tracestate:
        context["tracestate"] = trace.tracestate
    return context
