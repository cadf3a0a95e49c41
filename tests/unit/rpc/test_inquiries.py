"""What stands behind ``PolicyService``: bounded, and honest where an engine cannot tell."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kblockd.admission import on_behalf_of
from kblockd.config import PolicySettings
from kblockd.domain.errors import FailedPrecondition, Reason, ResourceExhausted
from kblockd.inquiries import EVALUATIONS, Inquiries
from kblockd.policy.bundles.signatures import UNVERIFIED
from kblockd.policy.deciding import Decision, PolicyFailure
from kblockd.policy.embedded.engine import EmbeddedEngine
from kblockd.policy.embedded.pool import EmbeddedLimits
from tests.unit.rpc.fakes import FakeClock, FakeEngine, FakeIds

DECISION = "kblock/decision/result"


class Slow(FakeEngine):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        await self.let.wait()
        return await super().evaluate(entrypoint, document)


def inquiries(engine: Any) -> Inquiries:
    settings = PolicySettings(None, Path("unused"), UNVERIFIED, 1.0, 1, 64)
    store: Any = None
    return Inquiries(engine, store, settings, FakeClock(), FakeIds())  # type: ignore[arg-type]  # the clock of the fakes


async def test_inquiries_do_not_crowd_what_decides() -> None:
    """One more than may be asked is refused at once and may be repeated; the others are answered. One principal has
    half of the places (AGT-03)."""
    engine = Slow()
    asked = inquiries(engine)
    running = []
    for who in ("local:operator", "local:auditor"):
        with on_behalf_of(who):
            running += [asyncio.ensure_future(asked.evaluate(DECISION, {})) for _ in range(EVALUATIONS // 2)]
            await asyncio.sleep(0)
            with pytest.raises(ResourceExhausted):
                await asked.evaluate(DECISION, {})
    with on_behalf_of("local:third"), pytest.raises(ResourceExhausted) as refused:
        await asked.evaluate(DECISION, {})
    assert (refused.value.reason, refused.value.retryable) == (Reason.OVERLOAD, True)
    engine.let.set()
    assert len(await asyncio.gather(*running)) == EVALUATIONS
    assert (await asked.evaluate(DECISION, {})).revision == "r1"


async def test_an_engine_without_a_bundle_does_not_explain() -> None:
    """A remote OPA has its bundle elsewhere."""
    with pytest.raises(FailedPrecondition, match="remote OPA"):
        await inquiries(FakeEngine()).explain(DECISION, {})


async def test_nothing_in_force_explains_nothing() -> None:
    engine = EmbeddedEngine(EmbeddedLimits(), FakeClock(), FakeIds())  # type: ignore[arg-type]  # the clock of the fakes
    with pytest.raises(PolicyFailure, match="no policy is active"):
        await inquiries(engine).explain(DECISION, {})
