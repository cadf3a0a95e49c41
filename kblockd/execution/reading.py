"""One read of an upstream for whichever stage needs it: 3 for the approver, 7 for the snapshot, 14 for the proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain import pointer
from kblockd.domain.answer import Numbers
from kblockd.domain.errors import FailedPrecondition, KblockError, Left, Reason, Unavailable
from kblockd.execution.parts import Parts
from kblockd.execution.spans import calling
from kblockd.telemetry.context import outgoing
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from kblockd.upstream.catalog import Upstream
from kblockd.upstream.faults import transient


class ReadRefused(Unavailable):
    """The upstream answers the read with an error that a repeat does not change: no such target, or no right to it."""


async def read_tool(
    parts: Parts,
    upstream: Upstream,
    tool: str,
    arguments: Mapping[str, Any],
    trace: Trace,
    *,
    timeout_seconds: float = 30.0,
    numbers: Numbers = "refuse",
) -> Outcome:
    """One read; every failure is an outcome. Reads carry no effect key (kblockd/upstream/README.md)."""
    with calling(trace, "read"):
        call = ToolCall(
            tool=tool,
            arguments=arguments,
            effect_key="",
            effect_key_in="none",
            effect_key_name="",
            deadline=parts.clock.monotonic() + timeout_seconds,
            credential=None,  # the guarded adapter puts in the read identity's
            trace=outgoing(trace),
            numbers=numbers,
        )
        return await upstream.read.read(call)


def unread(outcome: Outcome, left: Left, execution_id: str = "") -> KblockError:
    """Why there is no version or snapshot of the target, and whether a repeat can change that."""
    if outcome.unreadable is not None and not outcome.is_error:
        return FailedPrecondition(
            Reason.TARGET_UNREADABLE,
            f"the answer of the target's read is {outcome.unreadable}.",
            left,
            next_step="the upstream must answer what can be kept; for large or long numbers the contract may say "
            "`numbers: text` in reads.snapshot. Repeating the call does not help",
            execution_id=execution_id,
        )
    again = transient(outcome.code)
    refused = outcome.sent is Sent.ANSWERED and outcome.is_error and not again
    return (ReadRefused if refused else Unavailable)(
        Reason.UPSTREAM_UNAVAILABLE,
        f"the target could not be read ({outcome.code or outcome.sent.value}).",
        left,
        retryable=again,
        next_step="repeat the identical call when the upstream answers"
        if again
        else "the upstream refuses this read or cannot be used as it is configured: tell the operator",
        execution_id=execution_id,
    )


def version_at(at: str, output: Any) -> str:
    """The version in an answer as text, "" where the pointer meets none."""
    try:
        value = pointer.get(output, at)
    except pointer.PointerMissing:
        return ""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
