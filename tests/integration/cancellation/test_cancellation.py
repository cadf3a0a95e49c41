"""A cancellation at every await of one execution: the caller's, the run's, the adapter's, stage 0's, the policy's.

Whatever it meets, one effect is the most; the identical call brings the execution to its end; and nothing stays taken:
no lease, no target, no slot of the upstream, no place of an execution, no question.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import pytest
from kblockd_mcp.adapter import McpAdapter

from kblockd.client import CallError, Client
from kblockd.client.answers import Completed
from kblockd.execution.supervisor import Supervisor
from kblockd.policy.deciding.candidate import ComparingEngine
from kblockd.policy.deciding.shared import SharedEngine
from kblockd.policy.embedded.pool import Pool
from kblockd.rpc.identity import Authorizer
from kblockd.rpc.interceptors import Calls
from kblockd.upstream.wrapper import GuardedAdapter
from tests.harness import refund_contract
from tests.integration.pipeline.conftest import payments
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    effects,
    order,
    refund_in,
    types,
    until,
)
from tests.strikes import MOMENTS, Moment, Strike, Strikes
from tests.upstreams.payments import PaymentsServer

__all__ = ["payments"]

OPERATION: Final = "demo.refund"  # the shipped policy allows it, so that one call is a whole execution
DEMO: Final = refund_contract(
    {
        "action": {"type": OPERATION, "environment": "demo"},
        "execution": {"maximum_attempts": 2},
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
)
# The caller hears nothing of its own cancellation, as if it had gone; the others answer at once.
VICTIMS: Final = {"call": 1, "authorize": 1, "run": 1, "describe": 1, "read": 1, "invoke": 1, "slot": 1, "ask": 2}
GONE_SECONDS: Final = 0.3
FEW_TRIES: Final = 8


class Struck:
    """A daemon whose coroutines can be cancelled, and its upstream."""

    def __init__(self, site: LocalSite, pay: PaymentsServer, strikes: Strikes) -> None:
        self.site, self.pay, self.strikes = site, pay, strikes

    def execute(self, victim: str, at: int, moment: Moment) -> bool:
        """One execution, to its end; whether the cancellation met it."""
        assert self.site.daemon is not None
        self.site.run(self._forget())
        of, key = order(), order()
        call = refund_in("demo", of, key, operation=OPERATION)
        self.strikes.due = strike = Strike(victim, at, moment, VICTIMS[victim])
        with Client(f"unix:{self.site.socket('agent')}", wait_seconds=GONE_SECONDS, margin_seconds=0.1) as agent:
            answers = [_told(agent, call)]
            self.strikes.due = None
            while not isinstance(answers[-1], Completed) and len(answers) < FEW_TRIES:
                answers.append(_told(agent, call))
        last = answers[-1]
        assert isinstance(last, Completed), (strike, answers)
        assert len(effects(self.pay, of)) == 1, (strike, answers)
        assert "execution.sent" in types(self.site, last.execution_id), (strike, answers)
        return strike.hit

    async def _forget(self) -> None:
        assert self.site.daemon is not None
        self.site.daemon.rpc._authorizer._cached.clear()

    def taken(self) -> dict[str, Any]:
        """What an execution takes and gives back."""
        assert self.site.daemon is not None
        daemon = self.site.daemon
        parts, upstream = daemon.parts, daemon.parts.upstreams["payments"]
        shared, shares = cast(SharedEngine, cast(ComparingEngine, parts.engine)._engine), parts.admission
        serving: Any = shared._engine._serving  # type: ignore[attr-defined]  # the embedded one
        return {
            "places": parts.capacity.running,
            "runs": len(daemon.supervisor._running) + len(daemon.supervisor._tasks),
            "leases": len(parts.leases._held),
            "targets": len(parts.leases._targets),
            "slots": upstream.write._slots.in_use,
            "adapter calls": len(upstream.write._running) + len(upstream.read._running),
            "questions": len(serving._open) + len(serving._queue) + sum(len(lane._given) for lane in serving._lanes),
            "shared questions": len(daemon.rpc._authorizer._asking),
            "calls": len(daemon.rpc._in_flight._running),
            "shares": [*shares._calls, *shares._streams, *shares._bytes, *shares._executions],
            "turns": shares.reading.in_use + shared._slots.in_use,
            "definitions": len(parts.describing._asking) + len(parts.describing._next),
            "late answers": len(parts.late._waiting),
        }


def _told(agent: Client, call: Any) -> Any:
    try:
        return agent.execute(call)
    except CallError as refused:
        return refused


@pytest.fixture(scope="module")
def struck(payments: PaymentsServer) -> Iterator[Struck]:
    with pytest.MonkeyPatch.context() as patch, LocalSite.make() as site:
        strikes = Strikes()
        _expose(strikes, patch)
        site.configure(
            payments.url,
            contracts={OPERATION: DEMO},
            daemon={"clocks": {**LONG_LEASE, "sweep_seconds": 240}},
            upstream=PATIENT_BREAKER,
        )
        site.pin()
        site.start()
        yield Struck(site, payments, strikes)
        site.stop()
        assert "verified" in site.command("ledger", "verify", "--config", str(site.config))


def _expose(strikes: Strikes, patch: pytest.MonkeyPatch) -> None:
    unary = Calls.unary

    def exposed(self: Calls, method: str, *more: Any) -> Any:
        return strikes.on("call" if method.endswith("Execute") else method, unary(self, method, *more))

    patch.setattr(Calls, "unary", exposed)
    ask, named = McpAdapter._call, {"refund": "invoke", "get_order": "read"}

    async def asked(self: McpAdapter, call: Any, *, reading: bool) -> Any:
        return await strikes.on(named.get(call.tool, call.tool), ask)(self, call, reading=reading)

    patch.setattr(McpAdapter, "_call", asked)
    for owner, name, victim in (
        (Authorizer, "_answer", "authorize"),
        (Supervisor, "_supervise", "run"),
        (McpAdapter, "describe", "describe"),
        (GuardedAdapter, "_run", "slot"),
        (Pool, "ask", "ask"),
    ):
        patch.setattr(owner, name, strikes.on(victim, getattr(owner, name)))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", VICTIMS)
def test_rpc_02_a_cancellation_at_any_await_costs_no_second_effect_and_keeps_nothing(
    struck: Struck, victim: str, moment: Moment
) -> None:
    """R176, R174, R166: effects, places, leases."""
    at = 1
    while struck.execute(victim, at, moment):
        until(lambda: not any(struck.taken().values()), 20)
        at += 1
    assert at > 1, "the victim was never met"
