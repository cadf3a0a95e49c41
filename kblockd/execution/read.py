"""Stage 7: the authoritative read of the target, as the read-only identity, immediately before the write (R083)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kblockd.domain import pointer
from kblockd.domain.contract import resolve
from kblockd.domain.errors import Reason, Unavailable
from kblockd.domain.values import value_type
from kblockd.execution.lease import Leased
from kblockd.execution.parts import Parts
from kblockd.execution.spans import calling
from kblockd.execution.stages import Stage, stage
from kblockd.telemetry.context import outgoing
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Call, Outcome, Sent


@value_type(frozen=True, slots=True)
class Snapshot:
    """The target as the authority shows it; ``value`` is None where the contract reads none."""

    leased: Leased
    value: Any
    version: str

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.leased.trace


@stage(Stage.READ)
async def read(parts: Parts, leased: Leased) -> Snapshot:
    """Raises ``Unavailable`` when the authority cannot be read: lack of evidence is no evidence."""
    action = leased.preflighted.run.action
    wanted = action.contract.reads.snapshot
    if wanted is None:
        return Snapshot(leased, None, "")
    document = {"args": action.args, "execution_id": action.execution_id}
    outcome = await read_tool(parts, action.upstream, wanted.tool, resolve(wanted.arguments, document), leased.trace)
    if outcome.sent is not Sent.ANSWERED or outcome.is_error:
        raise Unavailable(
            Reason.UPSTREAM_UNAVAILABLE,
            f"the target could not be read ({outcome.code or outcome.sent.value}). "
            "Nothing was executed or consumed; the action stays approved.",
            retryable=True,
            next_step="repeat the identical call when the upstream answers",
            execution_id=action.execution_id,
        )
    version = version_at(wanted.version, outcome.output) if wanted.version else ""
    return Snapshot(leased, outcome.output, version)


async def read_tool(
    parts: Parts,
    upstream: str,
    tool: str,
    arguments: Mapping[str, Any],
    trace: Trace,
    *,
    timeout_seconds: float = 30.0,
) -> Outcome:
    """One read; every failure is an outcome. Reads carry no effect key (design section 6)."""
    with calling(trace, "read"):
        call = Call(
            tool=tool,
            arguments=arguments,
            effect_key="",
            effect_key_in="none",
            effect_key_name="",
            deadline=parts.clock.monotonic() + timeout_seconds,
            credential=None,  # the guarded adapter puts in the read identity's
            trace=outgoing(trace),
        )
        return await parts.upstreams[upstream].read.read(call)


def version_at(at: str, output: Any) -> str:
    """The version in an answer as text, "" where the pointer meets none."""
    try:
        value = pointer.get(output, at)
    except pointer.PointerMissing:
        return ""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
