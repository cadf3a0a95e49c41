"""The one table of hostile upstreams: what each does, and how its action must end with each adapter.

``test_table`` plays every row against a real daemon, ``document`` writes kblockd/upstream/hostile.md from it. Unless a
row says otherwise, only the first call meets the misbehaviour, two attempts are allowed, an exchange may take ten
seconds, and an absence is final a second after the call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.integration.hostile.rows import (
    PATIENT_SECONDS,
    Expected,
    Row,
    again,
    each,
    found,
    held,
    http,
    mcp,
    unsent,
    well,
)
from tests.upstreams.modes import Mode

_HURRIED: Final = 2
_CHANGED = Expected("", "", "cancelled", "", "BINDING_CHANGED", attempts=0, calls=0, effects=0, then="TOOL_CHANGED")
_DOUBLED = held("unknown_outcome", "CONNECTION_LOST", "failed_after_side_effect", "DUPLICATE", attempts=2, calls=2)
_UNPROVED = held("completed_unverified", "", "completed_unverified", "VERIFICATION_INCONCLUSIVE", effects=0)
_TWICE = held("completed_unverified", "", "failed_after_side_effect", "DUPLICATE", effects=2)
_BLIND = held("unknown_outcome", "CONNECTION_LOST", "unknown_outcome", "CONNECTION_LOST")
_BROKEN = replace(_BLIND, then="UPSTREAM_UNAVAILABLE")  # the lookups have opened the circuit breaker


def _refused(code: str) -> Expected:
    proved = Expected("unknown_outcome", code, "failed", "failed_before_side_effect", code, attempts=2, calls=2)
    return replace(proved, effects=0)


GROUPS: Final[dict[str, tuple[Row, ...]]] = {
    "Before the call is read": (
        each(Mode.REFUSE_CALL, "refuses the connection", "OUT-05", unsent("CONNECT_FAILED")),
        each(
            Mode.DROP_UNREAD,
            "accepts the call and resets the connection before reading it",
            "OUT-05",
            replace(again("CONNECTION_LOST"), calls=1),
        ),
    ),
    "After the call was read": (
        each(
            Mode.DROP_BEFORE_EFFECT,
            "reads the call, does nothing and resets the connection",
            "OUT-05",
            again("CONNECTION_LOST"),
        ),
        each(
            Mode.DROP_AFTER_EFFECT,
            "acts and resets the connection without a byte; its own hint says that a repeat would be harmless",
            "HTP-01 MCP-15 OUT-05",
            found("CONNECTION_LOST"),
        ),
        each(
            Mode.CLOSE_AFTER_EFFECT,
            "acts and closes the connection in good order without a byte",
            "HTP-01 MCP-01",
            found("CONNECTION_LOST"),
        ),
        each(
            Mode.STALL_BEFORE_EFFECT,
            "reads the call, does nothing and says nothing",
            "MCP-01",
            again("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
        ),
        each(
            Mode.STALL_AFTER_EFFECT,
            "acts and says nothing",
            "MCP-01 OUT-02",
            found("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
        ),
        each(
            Mode.LATE_ANSWER,
            "acts and answers after the deadline",
            "OUT-02",
            found("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
        ),
        each(
            Mode.LATE_EFFECT,
            "holds the connection, acts ten seconds later and then answers",
            "OUT-02 MCP-01",
            found("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
            final_seconds=PATIENT_SECONDS,
        ),
        each(
            Mode.ABANDONED,
            "drops the call, and carries the abandoned call out ten seconds later",
            "OUT-02 VER-01",
            found("CONNECTION_LOST"),
            final_seconds=PATIENT_SECONDS,
        ),
        each(
            Mode.BEYOND_FINALITY,
            "carries an abandoned call out only after the moment from which its contract calls an absence final",
            "VER-01 OUT-02",
            replace(_DOUBLED, effects=2),
        ),
        each(
            Mode.BEYOND_FINALITY,
            "the same, but it knows effects by their key and has each only once",
            "OUT-02 IDM-18",
            again("CONNECTION_LOST"),
            deduplicates=True,
        ),
        each(Mode.SLOW, "is silent for six seconds of the ten that it has, then answers", "MCP-11", well()),
        each(Mode.GONE_AFTER_EFFECT, "acts, and the whole server goes away", "MCP-01 OUT-05", _BROKEN),
        each(
            Mode.LOOKUP_FAILS,
            "acts and resets the connection; every lookup answers 500",
            "VER-04 HTP-08 UPS-05",
            _BROKEN,
            every=True,
        ),
    ),
    "A whole answer that is not true": (
        each(Mode.LIES, "answers that it acted, and did nothing", "VER-06 OUT-10", _UNPROVED, proof_seconds=1),
        each(Mode.ACTS_TWICE, "acts twice and answers once", "VER-06", _TWICE),
        each(Mode.ANSWERS_TWICE, "answers twice on one connection", "HTP-01", well()),
    ),
    "Statuses": (
        each(Mode.ERROR_BEFORE_EFFECT, "answers 500 and did nothing", "MCP-06 OUT-05", again("HTTP_500")),
        each(Mode.ERROR_AFTER_EFFECT, "acts and answers 500", "MCP-06 OUT-02", found("HTTP_500")),
        each(Mode.NOT_FOUND_AFTER_EFFECT, "acts, and a proxy answers 404", "MCP-02 MCP-09", found("HTTP_404")),
        each(Mode.GATEWAY_TIMEOUT, "acts, and a proxy answers 504", "HTP-08", found("HTTP_504")),
        Row(
            Mode.NOT_RUN,
            "says in its own shape, by a code that the contract lists, that it did not run the call",
            "OUT-05 UPS-06",
            unsent("HTTP_429", calls=2),
            unsent("TOOL_ERROR", calls=2),
        ),
        each(
            Mode.STILL_BUSY,
            "acts and says in its own shape that it is still at work",
            "OUT-10 UPS-07",
            found("IN_PROGRESS"),
        ),
        each(Mode.EDGE_524, "acts, and an edge answers 524 with a page", "UPS-04", found("HTTP_524")),
        each(
            Mode.PAGE_429,
            "acts, and a gateway answers a listed status (429) with a page",
            "UPS-06",
            found("HTTP_429"),
        ),
        each(
            Mode.JSON_429,
            "acts, and a gateway answers a listed status (429) with JSON of its own",
            "UPS-06",
            found("HTTP_429"),
        ),
        Row(
            Mode.REFUSED,
            "answers every call with an error (409; isError) and does nothing",
            "MCP-06",
            _refused("HTTP_409"),
            _refused("TOOL_ERROR"),
            every=True,
        ),
        Row(
            Mode.NOTHING,
            "acts and answers without a body (204, where the contract wants a word; 202)",
            "HTP-03",
            found("ANSWER_INCOMPLETE"),
            found("HTTP_202"),
        ),
        http(Mode.NOTHING, "acts and answers 204, where no word is wanted", "HTP-03", well(), tool="refund_plain"),
        each(
            Mode.REDIRECT_SAME,
            "acts and redirects to its own origin (307), where the call would arrive again",
            "HTP-06",
            found("REDIRECT_REFUSED"),
        ),
        each(Mode.REDIRECT_OTHER, "acts and redirects to another origin (303)", "HTP-06", found("REDIRECT_REFUSED")),
        each(Mode.UPGRADE, "acts and changes the protocol (101)", "HTP-06", found("CONNECTION_LOST")),
    ),
    "The frame of the answer": (
        each(Mode.HALF_HEADER, "acts and ends in a header", "HTP-01", found("CONNECTION_LOST")),
        each(Mode.HALF_BODY, "acts and ends in half of the body", "HTP-01", found("CONNECTION_LOST")),
        each(Mode.HALF_CHUNK, "acts and ends in half of a chunk", "HTP-01", found("CONNECTION_LOST")),
        each(
            Mode.RESET_IN_BODY,
            "acts and resets a kept connection in the middle of the answer",
            "HTP-01",
            found("CONNECTION_LOST"),
        ),
        each(Mode.HEADER_FLOOD, "acts and answers with 8 MB of headers", "OUT-04", found("CONNECTION_LOST")),
        each(Mode.HEADER_HUGE, "acts and answers with one header of 1 MiB", "OUT-04", found("CONNECTION_LOST")),
        each(
            Mode.INTERIM_FLOOD,
            "acts and sends interim answers (103) without end",
            "OUT-04 MCP-10",
            found("RESPONSE_TOO_LARGE"),
        ),
        each(Mode.LENGTHS_DISAGREE, "acts and answers with two lengths", "HTP-01", found("CONNECTION_LOST")),
        each(Mode.NOT_HTTP, "acts and answers in another protocol", "HTP-01", found("CONNECTION_LOST")),
        each(
            Mode.DRIP,
            "acts and drips the body, a byte now and then",
            "MCP-10",
            found("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
        ),
        each(
            Mode.DRIP_HEADER, "acts and drips a header", "MCP-10", found("UPSTREAM_TIMEOUT"), timeout_seconds=_HURRIED
        ),
    ),
    "The body of the answer": (
        each(Mode.TOO_LARGE, "acts and answers 5 MiB", "OUT-04", found("RESPONSE_TOO_LARGE")),
        each(Mode.GZIP_BOMB, "acts and answers 1 MiB of gzip that is 1 GiB", "OUT-04", found("RESPONSE_TOO_LARGE")),
        each(Mode.GZIP_BROKEN, "acts and answers half a gzip", "OUT-05", found("CONTENT_ENCODING_BROKEN")),
        each(
            Mode.ENCODING_UNKNOWN,
            "acts and answers in a coding that nobody asked for",
            "OUT-05",
            found("CONTENT_ENCODING_REFUSED"),
        ),
        Row(
            Mode.GARBAGE,
            "acts and answers half a JSON text",
            "OUT-05",
            found("ANSWER_NOT_JSON"),
            found("RPC_ERROR_32700"),
        ),
        Row(Mode.HTML, "acts and answers a page", "HTP-06", found("ANSWER_NOT_JSON"), found("CONTENT_TYPE")),
        Row(
            Mode.UTF16,
            "acts and answers JSON in UTF-16",
            "OUT-05",
            found("ANSWER_NOT_JSON"),
            found("RPC_ERROR_32700"),
        ),
        Row(
            Mode.EMPTY,
            "acts and answers 200 without a body",
            "HTP-04",
            found("ANSWER_INCOMPLETE"),
            found("RPC_ERROR_32700"),
        ),
        Row(
            Mode.UNSTORABLE,
            "acts and answers JSON that has no canonical form (an integer beyond 2^53)",
            "CAN-05 OUT-04 UPS-12",
            found("RESULT_NOT_STORABLE"),
            well("RESULT_NOT_STORABLE"),
        ),
        Row(
            Mode.WRONG_SCHEMA,
            "acts and answers against its own schema",
            "HTP-04 MCP-06",
            found("ANSWER_INCOMPLETE"),
            well("OUTPUT_SCHEMA_MISMATCH"),
        ),
        Row(
            Mode.ERROR_ANSWER,
            "acts and says that it did not work (200 with ok: false; isError)",
            "HTP-04 MCP-06",
            found("REPORTED_FAILURE"),
            found("TOOL_ERROR"),
        ),
        Row(
            Mode.LONG_ERROR,
            "acts and explains its failure in half a megabyte",
            "OUT-04",
            found("HTTP_500"),
            found("TOOL_ERROR"),
        ),
        each(
            Mode.ECHO_CREDENTIAL,
            "acts and repeats the credential in its answer, in every spelling",
            "R478 R640",
            well(),
        ),
        each(
            Mode.ECHO_IN_ERROR,
            "acts and repeats the credential in an error and in a header",
            "R478 R640",
            found("HTTP_500"),
        ),
    ),
    "What only HTTP can say": (
        http(
            Mode.ACCEPTED,
            "answers 202 with an operation, which then ends",
            "HTP-03 OUT-10",
            Expected("accepted", "", "succeeded", "completed_verified"),
        ),
        http(Mode.NAMELESS, "answers 202 without an operation", "HTP-03 OUT-10", found("OPERATION_MISSING")),
    ),
    "What only MCP can say": (
        mcp(Mode.WRONG_ID, "acts and answers under the id of another request", "OUT-05", found("RPC_ERROR_32000")),
        mcp(
            Mode.UNKNOWN_TOOL,
            "acts and answers -32602, unknown tool",
            "UPS-01 UPS-02 MCP-06",
            found("RPC_ERROR_32602"),
        ),
        mcp(Mode.NULL_ID, "acts and answers -32020 with id null, as HTTP 400", "UPS-03", found("HTTP_400")),
        mcp(Mode.BOTH, "acts and answers a result and an error at once", "UPS-03", found("RPC_ERROR_32600")),
        mcp(Mode.INTERNAL_ERROR, "acts and answers a JSON-RPC internal error", "MCP-06", found("RPC_ERROR_32603")),
        mcp(Mode.SESSION_LOST, "acts and answers 404, session not found", "MCP-02 MCP-09", found("HTTP_404")),
        mcp(Mode.INPUT_REQUIRED, "asks for input and does nothing", "MCP-06", again("INPUT_REQUIRED")),
        mcp(Mode.INPUT_AFTER_EFFECT, "acts and asks for input", "MCP-06", found("INPUT_REQUIRED")),
        mcp(
            Mode.TASK,
            "acts and answers with a task that nobody has claimed to understand",
            "MCP-17",
            found("TASK_UNSUPPORTED"),
        ),
        mcp(Mode.OTHER_TYPE, "acts and answers a result of an unknown type", "MCP-06", found("RESULT_TYPE_UNKNOWN")),
        mcp(
            Mode.STREAM_BROKEN,
            "acts, opens an event stream and drops it before any event",
            "MCP-12",
            found("CONNECTION_LOST"),
        ),
        mcp(Mode.STREAM_ENDED, "acts and ends an event stream without an answer", "MCP-12", found("RPC_ERROR_32000")),
        mcp(
            Mode.STREAM_SESSION_ERROR,
            "acts, and the stream ends with a session error",
            "MCP-02",
            found("RPC_ERROR_32001"),
        ),
        mcp(
            Mode.STREAM_TWICE, "acts and answers twice in one event stream, the second time otherwise", "MCP-12", well()
        ),
        mcp(Mode.PROGRESS_FLOOD, "acts and floods progress as fast as it can", "MCP-10", found("RESPONSE_TOO_LARGE")),
        mcp(
            Mode.PROGRESS_FOREVER,
            "acts and reports progress for ever",
            "MCP-10",
            found("UPSTREAM_TIMEOUT"),
            timeout_seconds=_HURRIED,
        ),
        mcp(Mode.PROGRESS, "acts, reports progress and answers in time", "MCP-10", well()),
    ),
    "Connections between two calls": (
        each(
            Mode.CLOSES_IDLE, "closes the connections that are kept between two requests", "HTP-01", well(), every=True
        ),
        each(
            Mode.RESETS_IDLE, "resets the connections that are kept between two requests", "HTP-01", well(), every=True
        ),
        each(Mode.HALF_CLOSES_IDLE, "closes its half of the connections that are kept", "HTP-01", well(), every=True),
        each(
            Mode.HALF_CLOSES_FIRST,
            "closes its half of the connection when it has read the call, then acts",
            "HTP-01",
            found("CONNECTION_LOST"),
        ),
    ),
    "Definitions": (
        each(Mode.CHANGED_AFTER_DECISION, "changes the tool's definition after the approval", "MCP-13", _CHANGED),
        each(
            Mode.CHANGED_BEFORE_CALL,
            "changes the tool's definition between the last look and the call",
            "MCP-13",
            replace(well(), then="TOOL_CHANGED"),
        ),
    ),
}
ROWS: Final = tuple(row for rows in GROUPS.values() for row in rows)
