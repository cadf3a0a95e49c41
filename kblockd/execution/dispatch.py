"""Stage 11: the adapter's ``invoke``, the only side effect, once, under one deadline for the whole exchange (R176)."""

from __future__ import annotations

from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.consume import Claim
from kblockd.execution.mark_sent import Marked, may_send, unfit
from kblockd.execution.parts import Parts
from kblockd.execution.spans import calling
from kblockd.execution.stages import stage
from kblockd.telemetry.context import outgoing
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Outcome, ToolCall
from kblockd.upstream.wrapper import NotBegun


@value_type(frozen=True, slots=True)
class Dispatched:
    """What the adapter says of the exchange. ``begun``: the plugin was asked to call. Where it was not, nothing can
    have left, and the attempt does not count towards those that the contract allows."""

    marked: Marked
    outcome: Outcome
    begun: bool = True

    @property
    def trace(self) -> Trace:
        """The execution's trace."""
        return self.marked.trace


@stage(Stage.DISPATCH)
async def dispatch(parts: Parts, marked: Marked) -> Dispatched:
    """Never raises: every failure is an outcome. A late answer is evidence, kept by ``parts.late``.

    ``unfit`` is proof of not sent: the adapter is not called under this marker, and never again.
    """
    claim = marked.claim
    action = claim.run.action
    execution_id, attempt = action.execution_id, claim.run.attempt
    with calling(claim.trace, "invoke"):
        outcome = await parts.upstreams[action.upstream].write.invoke(
            _call(parts, claim),
            lambda late: parts.late.add(execution_id, attempt, late),
            lambda begun: parts.leases.holds(claim.lease) if begun else may_send(parts, marked),
            on_outlive=lambda: parts.late.outlives(execution_id),
            unfit=lambda: unfit(parts, marked),
        )
    return Dispatched(marked, outcome, begun=not isinstance(outcome, NotBegun))


def _call(parts: Parts, claim: Claim) -> ToolCall:
    action = claim.run.action
    placement = action.contract.tool.effect_key
    return ToolCall(
        tool=action.tool,
        arguments=action.args,
        effect_key=claim.effect_key,
        effect_key_in=placement.place,
        effect_key_name=placement.name,
        deadline=parts.clock.monotonic() + action.limits.request_timeout_seconds,
        credential=None,  # the guarded adapter puts in the write identity's
        trace=outgoing(claim.trace),
    )
