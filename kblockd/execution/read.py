"""Stage 7: the authoritative read of the target, as the read-only identity, immediately before the write (R083)."""

from __future__ import annotations

from typing import Any

from kblockd.domain.contract import resolve
from kblockd.domain.errors import Left
from kblockd.domain.stages import Stage
from kblockd.domain.values import value_type
from kblockd.execution.lease import Leased
from kblockd.execution.parts import Parts
from kblockd.execution.reading import read_tool, unread, version_at
from kblockd.execution.stages import stage
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Sent


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
    """Lack of evidence is no evidence: raises ``Unavailable`` when the authority does not answer, and
    ``FailedPrecondition`` (TARGET_UNREADABLE) when what it answers cannot be kept (UPS-11, UPS-18)."""
    action = leased.preflighted.run.action
    wanted = action.contract.reads.snapshot
    if wanted is None:
        return Snapshot(leased, None, "")
    document = {"args": action.args, "execution_id": action.execution_id}
    upstream = parts.upstreams[action.upstream]  # as stage 5 found it: the agreed one
    arguments = resolve(wanted.arguments, document)
    outcome = await read_tool(parts, upstream, wanted.tool, arguments, leased.trace, numbers=wanted.numbers)
    if outcome.sent is not Sent.ANSWERED or outcome.is_error:
        raise unread(outcome, Left.APPROVED, action.execution_id)
    version = version_at(wanted.version, outcome.output) if wanted.version else ""
    return Snapshot(leased, outcome.output, version)
