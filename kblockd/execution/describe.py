"""A fresh look at the tool's definition, against the reviewed pin (stages 3 and 5; MCP-13, R032, R449)."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Final

from kblockd.domain.contract import ActionContract
from kblockd.domain.errors import FailedPrecondition, Left, Reason, Unavailable
from kblockd.domain.ledger import identifier
from kblockd.domain.values import value_type
from kblockd.execution.parts import Parts
from kblockd.execution.spans import calling
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import AdapterFault
from kblockd.upstream.faults import transient
from kblockd.upstream.pins import definition_sha256

DESCRIBE_SECONDS: Final = 10.0


@value_type(frozen=True, slots=True)
class Described:
    """What the upstream says of the tool; asked ``at``."""

    definition_sha256: str
    server_version: str
    at: dt.datetime


async def describe(parts: Parts, contract: ActionContract, trace: Trace) -> Described:
    """The tool that acts, as served now; those whose answers count as proof are held against their pins on the way: a
    lookup that changed could call an effect absent.

    Raises ``Unavailable`` when the upstream cannot be asked, and for the latter what ``check_pin`` raises.
    """
    upstream, reads = contract.tool.upstream, sorted(_read_tools(contract))
    with calling(trace, "describe"):
        if not reads:
            return await _described(parts, upstream, contract.tool.name)
        asked = (_described(parts, upstream, tool) for tool in (contract.tool.name, *reads))
        own, *others = await asyncio.gather(*asked)
    for tool, described in zip(reads, others, strict=True):
        check_pin(parts, upstream, tool, described)
    return own


def _read_tools(contract: ActionContract) -> set[str]:
    reads = {read.tool for read in (contract.reads.snapshot, contract.reads.verify) if read is not None}
    return reads | {lookup.tool for lookup in contract.lookup}


async def _described(parts: Parts, upstream: str, tool: str) -> Described:
    return await parts.describing.join((upstream, tool), lambda: _asked(parts, upstream, tool))


async def _asked(parts: Parts, upstream: str, tool: str) -> Described:
    at = parts.clock.now()
    try:
        deadline = parts.clock.monotonic() + DESCRIBE_SECONDS
        description = await parts.upstreams[upstream].read.describe(tool, deadline)
    except AdapterFault as fault:
        again = transient(fault.code)
        raise Unavailable(
            Reason.UPSTREAM_UNAVAILABLE,
            f"the definition of {upstream}/{tool} could not be read ({fault.code}).",
            Left.NOTHING,
            retryable=again,
            next_step="repeat the identical call when the upstream answers"
            if again
            else f"tell the operator: `kblockd upstream pin {upstream}` shows why",
        ) from None
    return Described(definition_sha256(description), identifier(description.server_version), at)


def pin_of(parts: Parts, upstream: str, tool: str) -> str | None:
    """The reviewed digest, or None."""
    pin = parts.upstreams[upstream].config.tools.get(tool)
    return pin.definition_sha256 if pin else None


def check_pin(parts: Parts, upstream: str, tool: str, described: Described) -> None:
    """Raises ``FailedPrecondition``: UNPINNED_TOOL or TOOL_CHANGED."""
    pinned = pin_of(parts, upstream, tool)
    if pinned is None:
        if parts.unpinned_tools:
            return
        raise FailedPrecondition(
            Reason.UNPINNED_TOOL,
            f"{upstream}/{tool} has no reviewed definition.",
            Left.NOTHING,
            next_step=f"review what `kblockd upstream pin {upstream}` prints and put it into the upstream's file",
        )
    if pinned != described.definition_sha256:
        raise FailedPrecondition(
            Reason.TOOL_CHANGED,
            f"the definition of {upstream}/{tool} is not the reviewed one.",
            Left.NOTHING,
            next_step=f"review the change with `kblockd upstream pin {upstream}`",
        )
