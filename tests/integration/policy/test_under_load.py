"""Sixteen callers execute while what decides is replaced, killed or frozen: nothing above the limit ever happens.

Amounts are cents: ``ALWAYS`` is within either limit, ``SOMETIMES`` within the wide one alone, ``NEVER`` above both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kblockd.client import AsyncClient, CallError
from kblockd.domain.stages import Stage
from kblockd.policy.bundles.bundle import read
from tests.contract.policy.bundles import put
from tests.contract.policy.support import children, opa_binary, until
from tests.integration.pipeline.limits import limited
from tests.integration.pipeline.local import LocalSite, order, refund_in, since
from tests.integration.pipeline.shop import Shop

CALLERS = 16
ALWAYS, SOMETIMES, NEVER = "0.50", "1.50", "3.00"
NARROW, WIDE = 1.0, 2.0
RELOADS = 4


@dataclass
class Crowd:
    """``answers`` counts what came of each amount: the kind of an answer, or the reason of an error."""

    site: LocalSite
    shop: Shop
    amounts: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Counter[str]] = field(default_factory=lambda: {a: Counter() for a in (ALWAYS, SOMETIMES, NEVER)})
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, agent: AsyncClient, amount: str) -> None:
        """One order after the other; whoever was not let through takes a breath, so that no limit is met."""
        while not self.done.is_set():
            mine = order()
            self.amounts[mine] = amount
            kind = await self._asked(agent, mine, amount)
            self.answers[amount][kind] += 1
            if kind != "Completed":
                await asyncio.sleep(0.05)

    async def _asked(self, agent: AsyncClient, mine: str, amount: str) -> str:
        """What came of it. A reload that comes in between costs one more evaluation, never an answer."""
        try:
            answer = await agent.execute(refund_in("shop", mine, key=mine, amount=amount))
        except CallError as error:
            return str(error.reason)
        return type(answer).__name__

    async def comes(self, amount: str, kind: str) -> None:
        """Until one more such answer."""
        before = self.answers[amount][kind]
        await until(lambda: self.answers[amount][kind] > before)

    def happened(self) -> Counter[str]:
        """Effects by amount; no order has two."""
        found = {mine: len(self.shop.shop.of(mine)) for mine in self.amounts}
        assert max(found.values()) <= 1
        return Counter(self.amounts[mine] for mine, count in found.items() if count)


@contextlib.asynccontextmanager
async def crowd(site: LocalSite, shop: Shop) -> AsyncIterator[Crowd]:
    """Calls while the block runs, and has ended afterwards."""
    found = Crowd(site, shop)
    async with AsyncClient(f"unix:{site.socket('agent')}") as agent, asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(found.call(agent, (ALWAYS, SOMETIMES, NEVER)[number % 3]))
        try:
            yield found
        finally:
            found.done.set()


@contextlib.contextmanager
def deciding(engine: str, seconds: float = 5.0) -> Iterator[tuple[LocalSite, Shop]]:
    """A daemon with the narrow limit."""
    policy: dict[str, Any] = {"evaluate_timeout_seconds": seconds}
    if engine == "opa":
        policy |= {"engine": "opa", "opa": {"command": str(opa_binary()), "run_dir": "../opa"}}
    with limited(NARROW, daemon={"policy": policy, "limits": {"pending_approvals_per_agent": 10_000}}) as found:
        yield found


async def limit_to(site: LocalSite, amount: float) -> str:
    """The revision that is in force afterwards."""
    folder = site.config.parent / "policy"
    put(folder / "data.json", json.dumps({"limits": {"amount": amount}}).encode())
    assert site.daemon is not None
    assert await asyncio.to_thread(site.run, site.daemon.policy.reload()) is True
    return read(folder).revision


@pytest.mark.parametrize("engine", ["embedded", pytest.param("opa", marks=pytest.mark.soak)])
def test_c27_pol_05_reloads_while_sixteen_callers_execute(engine: str) -> None:
    """C27: what is always within the limit is always done, what is above never, and what happened was within the limit
    of the revision that its consumption names."""
    with deciding(engine) as (site, shop):
        callers, limits = asyncio.run(reloaded(site, shop))
        assert set(callers.answers[ALWAYS]) == {"Completed"}
        assert set(callers.answers[NEVER]) == {"ApprovalPending"}
        happened = callers.happened()
        assert happened[NEVER] == 0
        assert happened[ALWAYS] == callers.answers[ALWAYS]["Completed"]
        records = since(site, 0)
        orders = {r["execution"]: r["body"]["target"]["id"] for r in records if r["type"] == "execution.proposed"}
        claimed = [record for record in records if record["type"] == "execution.claimed"]
        # A revision that comes into force between the consumption and the call may still refuse it (APV-01).
        done = [r for r in records if r["type"] == "attempt.outcome" and r["body"]["class"] == "completed_unverified"]
        assert len(done) == sum(happened.values())
        assert {record["execution"] for record in done} <= {record["execution"] for record in claimed}
        for record in claimed:
            amount = callers.amounts[orders[record["execution"]]]
            assert float(amount) <= limits[record["body"]["policy_revision"]]
        check_evaluations(records)


def check_evaluations(records: list[dict[str, Any]]) -> None:
    """A reload delays no execution by more than one evaluation of stage 8, and so by no pause of stages 5 to 7."""
    proposed: dict[str, int] = {}
    for index, record in enumerate(records):
        if record["type"] == "execution.proposed":
            proposed[record["execution"]] = index
        if record["type"] == "execution.claimed":
            meanwhile = records[proposed[record["execution"]] : index]
            reloads = sum(one["type"] == "policy.activated" for one in meanwhile)
            asked = sum(stage == Stage.PRECONDITIONS.order for stage, _ in record["body"]["stages"])
            assert 1 <= asked <= 1 + reloads


async def reloaded(site: LocalSite, shop: Shop) -> tuple[Crowd, dict[str, float]]:
    """The crowd afterwards, and the limit of each revision that was in force."""
    limits = {read(site.config.parent / "policy").revision: NARROW}
    async with crowd(site, shop) as callers:
        for number in range(RELOADS):
            limit = (WIDE, NARROW)[number % 2]
            limits[await limit_to(site, limit)] = limit
            await callers.comes(SOMETIMES, "Completed" if limit == WIDE else "ApprovalPending")
    return callers, limits


@pytest.mark.parametrize("blow", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.soak)])
def test_pol_13_opa_killed_or_frozen_while_sixteen_callers_execute(blow: signal.Signals) -> None:
    """POL-13: refused until OPA is back by itself, never a wrong allowance, and kblockd is the same all the time."""
    with deciding("opa", seconds=1.0) as (site, shop):
        daemon = site.daemon
        callers = asyncio.run(struck(site, shop, blow, 3 if blow == signal.SIGKILL else 1))
        engine = {"POLICY_DOWN", "POLICY_TIMEOUT"}
        assert set(callers.answers[ALWAYS]) <= {"Completed", *engine}
        for amount in (SOMETIMES, NEVER):
            assert set(callers.answers[amount]) <= {"ApprovalPending", *engine}
        assert set(callers.happened()) == {ALWAYS}
        assert site.daemon is daemon


async def struck(site: LocalSite, shop: Shop, blow: int, times: int) -> Crowd:
    """The crowd after so many blows at the OPA of the moment, each of which it came back from by itself."""
    async with crowd(site, shop) as callers:
        for _ in range(times):
            await callers.comes(ALWAYS, "Completed")
            (victim,) = children(mark=b"--server")
            os.kill(victim, blow)
            await until(lambda victim=victim: len(now := children(mark=b"--server")) == 1 and victim not in now)
        await callers.comes(ALWAYS, "Completed")
        await callers.comes(NEVER, "ApprovalPending")
    return callers
