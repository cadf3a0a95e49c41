"""The outcome of a call and the facts of its answer. A pure function over notes; the table is in
plugins/mcp/README.md#what-the-sdks-client-makes-of-it.

NOT_SENT   no byte of the POST left the process.
ANSWERED   a complete result, or an error under this request's own id. The contract declares and the core judges whether
           an error is the tool's and what it proves: servers answer -32602 after the tool has run, and proxies "Unknown
           tool" after they have forwarded the call.
LOST       everything else: no answer or half of one, an answer without this request's id or with both a result and an
           error (UPS-03), HTTP errors without such a message, 404 and 5xx (a proxy or session error may follow the
           effect, MCP-02), internal errors, a task that was not requested, a malformed result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types import ErrorData

from kblockd.domain.answer import Numbers, Unreadable
from kblockd.upstream.adapter import Facts, Outcome, Sent
from kblockd_mcp import output as outputs
from kblockd_mcp.wire import CallNotes

MAX_DETAIL_BYTES: Final = 2048
# Crashed, timed out or disconnected: such an error does not mean that the tool has ended.
_UNFINISHED: Final = frozenset({-32603, -32700, -32000, -32001})
_CONTENT_TYPES: Final = ("application/json", "text/event-stream")
_LONGEST_CODE: Final = 64  # of an outcome
_NOTHING: Final = Facts()
_IDENTIFIER: Final = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class CallEvidence:
    """Everything known about one call when it ended."""

    bytes_written: int
    call: CallNotes
    result: Mapping[str, Any] | None = None
    error: ErrorData | None = None
    own: bool = False  # the error carries this request's id
    call_id: str = ""
    session_id: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict)
    unreadable: Unreadable | None = None
    numbers: Numbers = "refuse"
    reading: bool = False


def outcome(known: CallEvidence) -> Outcome:
    """Never raises."""
    call = known.call
    if known.result is not None:
        return _result(known, known.result)
    if known.bytes_written == 0 and call.status is None:
        return _end(known, Sent.NOT_SENT, call.failure or "NOT_DISPATCHED")
    if call.failure or call.status is None:
        return _end(known, Sent.LOST, call.failure or "NO_ANSWER", _text(known.error))
    return _refusal(known, call.status)


def _result(known: CallEvidence, result: Mapping[str, Any]) -> Outcome:
    kind = result.get("resultType", "complete")
    if kind == "input_required":
        detail = "the tool asks for input, which is never given"
        return _end(known, Sent.ANSWERED, "INPUT_REQUIRED", detail, error=True)
    if kind == "task" or ("task" in result and "content" not in result):
        task = _task_id(result)
        ids = {"task": _identifier(task)} if task else {}
        facts = Facts(at_work=True)
        return _end(known, Sent.LOST, "TASK_UNSUPPORTED", "the work may go on", ids=ids, facts=facts)
    is_error = result.get("isError", False)
    if kind != "complete":
        return _end(known, Sent.LOST, "RESULT_TYPE_UNKNOWN", f"resultType {kind!r}")
    if not isinstance(is_error, bool) or not isinstance(result.get("content", []), list):
        return _end(known, Sent.LOST, "RESULT_MALFORMED", "isError or content has a wrong type")
    if "content" not in result and "structuredContent" not in result:
        return _end(known, Sent.LOST, "RESULT_MALFORMED", "neither content nor structuredContent")
    output, unreadable = outputs.extract(result, known.numbers, reading=known.reading)
    if is_error:
        facts = Facts(True, "tool_result", known.call.status, known.call.content_type)
        return _end(known, Sent.ANSWERED, "TOOL_ERROR", outputs.text(result), error=True, output=output, facts=facts)
    if unreadable is not None:
        return _end(known, Sent.ANSWERED, "RESULT_NOT_STORABLE", str(unreadable), unreadable=unreadable)
    return _end(known, Sent.ANSWERED, outputs.fault(result, known.definition, known.numbers), output=output)


def _task_id(result: Mapping[str, Any]) -> str:
    """Flat (2026-07-28) or nested (2025-11-25); empty unless it is text."""
    nested = result.get("task")
    task = result.get("taskId") or (nested.get("taskId") if isinstance(nested, dict) else None)
    return task if isinstance(task, str) else ""


def _refusal(known: CallEvidence, status: int) -> Outcome:
    """An answer without a result: the HTTP status first, because the error may be synthetic."""
    error = known.error
    if status >= 500 or status in (404, 408) or status == 202 or status < 200 or 300 <= status < 400:
        return _end(known, Sent.LOST, f"HTTP_{status}", _text(error))
    if error is None:
        return _end(known, Sent.LOST, "NO_ANSWER")
    if status < 300 and known.call.content_type not in _CONTENT_TYPES:
        return _end(known, Sent.LOST, "CONTENT_TYPE", known.call.content_type)
    code = f"RPC_ERROR_{abs(error.code)}"[:_LONGEST_CODE] if status < 300 else f"HTTP_{status}"
    if not known.own or error.code in _UNFINISHED:
        return _end(known, Sent.LOST, code, _text(error))
    facts = Facts(True, "rpc_error", status, known.call.content_type, error.code)
    output = error.model_dump(exclude_none=True)
    return _end(known, Sent.ANSWERED, code, _text(error), error=True, output=output, facts=facts)


def _end(
    known: CallEvidence,
    sent: Sent,
    code: str,
    detail: str = "",
    *,
    error: bool = False,
    output: Any = None,
    ids: Mapping[str, str] | None = None,
    facts: Facts = _NOTHING,
    unreadable: Unreadable | None = None,
) -> Outcome:
    digest = known.call.sha256.hexdigest() if known.call.status is not None else ""
    return Outcome(
        sent,
        output=output,
        is_error=error,
        code=code,
        detail=cut(detail),
        raw_sha256=digest,
        request_ids={**_request_ids(known), **(ids or {})},
        facts=facts,
        unreadable=unreadable or known.unreadable,
    )


def _request_ids(known: CallEvidence) -> dict[str, str]:
    """Protocol identifiers for the ledger (R202). A session id is a capability, so only its digest is stored."""
    ids = {"jsonrpc": _identifier(known.call_id)}
    if known.session_id:
        ids["session_sha256"] = hashlib.sha256(known.session_id.encode()).hexdigest()
    if known.call.http_request_id:
        ids["http"] = _identifier(known.call.http_request_id)
    return {name: value for name, value in ids.items() if value}


def _identifier(text: str) -> str:
    """The text itself if it is short and printable, else its digest: the ledger holds no free text."""
    if not text or _IDENTIFIER.fullmatch(text):
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _text(error: ErrorData | None) -> str:
    return f"{error.code}: {error.message}" if error is not None else ""


def cut(detail: str) -> str:
    """At most ``MAX_DETAIL_BYTES`` of UTF-8 (OUT-04)."""
    return detail.encode("utf-8", "replace")[:MAX_DETAIL_BYTES].decode("utf-8", "ignore")
