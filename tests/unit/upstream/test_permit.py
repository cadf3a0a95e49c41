"""Nothing is written for a caller that has lost the authority to call: its lease ended on the way (LSE-01)."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from kblockd.upstream.meter import Meter
from kblockd.upstream.scope import current
from tests.unit.upstream.plugin import call, guarded


def test_lse_01_a_meter_without_a_permit_writes_nothing() -> None:
    """Zero stays proof; what was read before is read on."""
    permitted = [True]
    end = time.monotonic() + 60
    meter = Meter(end, end, 1000, permit=lambda begun: permitted[0])
    meter.may_write(10)
    permitted[0] = False
    with pytest.raises(httpx2.WriteTimeout):
        meter.may_write(5)
    assert (meter.written, meter.code) == (10, "LEASE_ENDED")
    assert meter.may_read() > 0


async def test_lse_01_an_invocation_carries_its_permit_to_its_exchanges() -> None:
    """The effect alone is under a lease; a read needs no permit."""
    seen: list[Any] = []

    async def behaviour(given: ToolCall) -> Outcome:
        scope = current()
        assert scope is not None
        seen.append(scope.permit(False))
        return Outcome(Sent.ANSWERED, {})

    adapter = guarded(behaviour)
    await adapter.invoke(call(), permit=lambda begun: False)
    await adapter.read(call())
    assert seen == [False, True]
