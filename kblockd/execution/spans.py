"""What a trace says of an execution: the root's attributes from its row, and a span around every upstream call.

Names come from the telemetry contract; values are words, counts and configured names, never content (R520 to R530).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.telemetry import contract as names
from kblockd.telemetry.recorder import Trace

_FROM_ROW: Final = {
    names.OPERATION: "operation",
    names.ENVIRONMENT: "environment",
    names.UPSTREAM: "upstream",
    names.TOOL: "tool",
    names.SERVER_VERSION: "tool_version",
    names.EFFECT: "effect",
    names.STATE: "state",
    names.RESULT_CLASS: "result_class",
    names.RECOVERY: "recovery",
    names.ATTEMPT: "attempt",
}


def describe(trace: Trace, row: ExecutionRow) -> None:
    """Sets the root's attributes: what was decided, executed and proved (R532)."""
    for attribute, field in _FROM_ROW.items():
        if value := getattr(row, field):
            trace.attributes[attribute] = value
    if row.verification:
        trace.attributes[names.VERIFICATION] = row.verification.verdict
    if row.finding:
        trace.attributes[names.FINDING] = row.finding.finding


def planned(trace: Trace, recovery: str) -> None:
    """Sets the recovery on the open stage and on the root: the execution's row forgets it with the next attempt
    (R517, R526)."""
    trace.note(names.RECOVERY, recovery)
    trace.attributes[names.RECOVERY] = recovery


def polling(trace: Trace) -> AbstractContextManager[Any]:
    """A span for one iteration of a wait at 13 or 14: its questions, without the pause after them (R515)."""
    row = trace.open_row()
    return nullcontext() if row is None else trace.nested(row, "poll")


def calling(trace: Trace, call: str) -> AbstractContextManager[Any]:
    """A span for one adapter call inside the open stage or poll (R514).

    ``call`` is describe, read, invoke, lookup or poll.
    """
    row = trace.open_row()
    if row is None:
        return nullcontext()
    nested = trace.nested(row, "upstream_call")
    nested.attributes[names.CALL] = call
    return nested
