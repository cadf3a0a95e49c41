"""AGT-03, AGT-04: one principal's questions wait for one another, not the other's for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kblockd.admission import Slots, on_behalf_of
from kblockd.policy.deciding import Decision
from kblockd.policy.deciding.shared import SharedEngine
from tests.unit.rpc.fakes import FakeEngine

DECISION = "kblock/decision/result"


class Slow(FakeEngine):
    """Notes who is with it, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.inside = 0

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        self.inside += 1
        await self.let.wait()
        self.inside -= 1
        return await super().evaluate(entrypoint, document)


async def test_agt_04_the_engine_has_at_most_a_share_of_one_principals_questions() -> None:
    slow = Slow()
    engine = SharedEngine(slow, Slots(None, 4))
    with on_behalf_of("hostile"):
        crowd = [asyncio.ensure_future(engine.evaluate(DECISION, {})) for _ in range(800)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert slow.inside == 4
    with on_behalf_of("good"):
        good = asyncio.ensure_future(engine.evaluate(DECISION, {}))
    await asyncio.sleep(0)
    assert slow.inside == 5  # it is with the engine at once
    slow.let.set()
    await asyncio.gather(good, *crowd)
    assert len(slow.asked) == 801
    assert engine.status() == slow.status()
