"""The process or the machine is stopped between a look and the act that relies on it, and the world goes on meanwhile.

Stopped, all clocks go on; asleep, the monotonic one stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
from kblockd_mcp.adapter import McpAdapter

from kblockd.client.answers import ApprovalPending, Completed, Held, UpstreamError
from kblockd.client.calls import Call
from kblockd.client.errors import CallError
from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.adapter import ToolCall as Invocation
from tests.harness import approve, revoke
from tests.integration.clocks.looks import StoppingSite
from tests.integration.clocks.test_jumps import PAST_THE_LEASE, moved
from tests.integration.mcp import rig
from tests.integration.pipeline.local import LONG_LEASE, ask, effects, order, records, refund_in, variants
from tests.integration.pipeline.test_gaps_decision import unread
from tests.integration.races.changes import PAST_THE_APPROVAL
from tests.integration.staged import told
from tests.upstreams.payments import PaymentsServer

ENVIRONMENTS: Final = {
    "production": {},
    "patient": {"execution": {"absolute_deadline_seconds": 300, "maximum_attempts": 2}},
    "impatient": {"execution": {"request_timeout_seconds": 1, "maximum_attempts": 2}},
}
APPROVED: Final = "payment.refund.create"
AT_ONCE: Final = "note.allow"
PAST_THE_DEADLINE: Final = 21.0  # seconds; shorter than the lease
A_NIGHT: Final = 8 * 3600.0
LONG: Final = [pytest.param({"passed": 200.0}, id="stopped"), pytest.param({"asleep": 200.0}, id="asleep")]
Invoke = Callable[[McpAdapter, Invocation], Awaitable[Outcome]]


@pytest.fixture(scope="module")
def made(payments: PaymentsServer) -> Iterator[StoppingSite]:
    """The daemon of this module; in ``patient`` attempts are made until long after the lease."""
    contracts = {**variants(ENVIRONMENTS), AT_ONCE: unread(AT_ONCE, {}, environment="staging", risk_tier="low")}
    with StoppingSite.serving(payments, contracts, close_after_seconds=660) as site:
        yield site


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Callable[[Invoke], Invoke]:
    """Sets what the plugin does once it is asked for the effect, and before it has connected; answers what it would
    have done."""

    def replace(effect: Invoke) -> Invoke:
        plain = McpAdapter.invoke

        async def invoke(self: McpAdapter, given: Invocation) -> Outcome:
            return await (effect if given.tool == "refund" else plain)(self, given)

        monkeypatch.setattr(McpAdapter, "invoke", invoke)
        return plain

    return replace


def approved(site: StoppingSite, environment: str = "production") -> tuple[str, Call, ApprovalPending]:
    """An order of its own, the call about it, and its approval."""
    mine = order()
    call = refund_in(environment, mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    return mine, call, pending


@pytest.mark.parametrize("seconds", [PAST_THE_DEADLINE, A_NIGHT])
def test_r572_nothing_leaves_after_the_deadline_when_the_machine_slept_on_the_way(
    site: StoppingSite, pay: PaymentsServer, act: Callable[[Invoke], Invoke], seconds: float
) -> None:
    """R572, R462: it falls asleep behind the last look of the dispatch, while the plugin connects: monotonic time, by
    which the request has its own end, has stood still."""

    async def effect(self: McpAdapter, given: Invocation) -> Outcome:
        site.machine.asleep += seconds
        return await plain(self, given)

    plain = act(effect)
    mine, call, _ = approved(site)
    answer = told(site, call)
    assert isinstance(answer, UpstreamError), answer
    assert (answer.result_class, answer.executed, answer.consumed) == ("failed_before_side_effect", False, True)
    assert effects(pay, mine) == []


def test_rpc_09_ups_08_a_task_that_only_ends_when_it_is_cancelled_allows_no_next_attempt(
    site: StoppingSite, pay: PaymentsServer, act: Callable[[Invoke], Invoke]
) -> None:
    """RPC-09, C3, UPS-08: the first attempt is lost and looked up as absent, and might still act: nothing proves that
    it did not, also not its end, for which it had to be cancelled. What it says then is evidence."""
    attempts: list[Invocation] = []

    async def effect(self: McpAdapter, given: Invocation) -> Outcome:
        attempts.append(given)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Outcome(Sent.LOST, request_ids={"sdk": "still-at-it"})
        raise AssertionError

    act(effect)
    mine, call, _ = approved(site, "impatient")
    answer = told(site, call)
    assert isinstance(answer, Held), answer
    assert (answer.code, len(attempts), effects(pay, mine)) == ("UPSTREAM_TIMEOUT", 1, [])
    assert (answer.executed, answer.outcome_unknown) == (True, True)


@pytest.mark.parametrize(("seconds", "fetched"), [(PAST_THE_DEADLINE, [200]), (PAST_THE_LEASE, [])])
def test_r572_what_fetches_the_answer_of_a_begun_request_needs_the_lease_alone(
    site: StoppingSite, act: Callable[[Invoke], Invoke], seconds: float, fetched: list[int]
) -> None:
    """R572, LSE-01: no attempt begins after the deadline, but one that has begun is brought to its end, as long as
    nobody else may have taken over."""
    statuses: list[int] = []

    async def effect(self: McpAdapter, given: Invocation) -> Outcome:
        exchange = self._context.exchange(given.deadline)
        exchange.mark()
        try:
            await exchange.send("GET", b"/control", [], b"")
            site.machine.asleep += seconds
            statuses.append((await exchange.send("GET", b"/control", [], b"")).status)
            return Outcome(Sent.ANSWERED, {"status": "failed"}, is_error=True)
        finally:
            await exchange.close()

    act(effect)
    _, call, _ = approved(site)
    assert isinstance(told(site, call), UpstreamError)
    assert statuses == fetched


def test_apr_04_no_consumption_is_dated_after_the_approval_it_used(site: StoppingSite) -> None:
    """APR-04, R112: stopped at any look of stage 9 past the approval's end: refused, or dated before it."""
    left, dated = 15.0, []
    for begin in site.every_look(left + 1.0, "consume:ordered"):
        _, call, pending = approved(site)
        site.machine.passed += LONG_LEASE["approval_ttl_seconds"] - left
        site.boundaries.at("consume:before", begin)
        answer = told(site, call)
        found = by_type(site, pending)
        claimed = found.get("execution.claimed")
        assert claimed is None or claimed["at"] < found["approval.requested"]["body"]["not_after"], answer
        dated.append(site.machine.stopped and claimed is not None)
    assert any(dated)  # stopped, and on record


def test_r572_no_marker_is_dated_after_the_deadline(site: StoppingSite, pay: PaymentsServer) -> None:
    """R572, R462: stopped at any look of stage 10 past the absolute deadline: not sent, and a marker that the ledger
    shows is dated before it."""
    dated = []
    for begin in site.every_look(PAST_THE_DEADLINE, "mark_sent:ordered"):
        mine, call, pending = approved(site)
        site.boundaries.at("mark_sent:before", begin)
        answer = told(site, call)
        assert isinstance(answer, UpstreamError if site.machine.stopped else Completed), answer
        assert len(effects(pay, mine)) == (not site.machine.stopped)
        found = by_type(site, pending)
        sent = found.get("execution.sent")
        assert sent is None or sent["at"] < found["execution.claimed"]["body"]["deadline_at"], answer
        dated.append(site.machine.stopped and sent is not None)
    assert any(dated)  # stopped, and on record


def _approves(site: StoppingSite, approval_id: str) -> None:
    with contextlib.suppress(CallError):
        approve(site, approval_id)


@pytest.mark.parametrize(
    ("does", "type_"), [(_approves, "approval.decided"), (revoke, "approval.revoked")], ids=["decided", "revoked"]
)
def test_apr_04_no_word_of_a_person_is_dated_after_the_term_of_what_was_asked(
    site: StoppingSite, does: Callable[[StoppingSite, str], object], type_: str
) -> None:
    """APR-04: stopped at any look while it is taken past the end of the approval: refused, or dated before it."""
    dated = []
    for begin in site.every_look(PAST_THE_APPROVAL, "await_approval:ordered"):
        mine = order()
        pending = ask(site, refund_in("production", mine, key=mine))
        site.run(begin())
        does(site, pending.approval_id)
        found = by_type(site, pending)
        said = found.get(type_)
        assert said is None or said["at"] < found["approval.requested"]["body"]["not_after"]
        dated.append(site.machine.stopped and said is not None)
    assert any(dated)  # stopped, and on record


def by_type(site: StoppingSite, pending: ApprovalPending) -> dict[str, dict[str, Any]]:
    """The records of an execution, the last of each type."""
    return {record["type"]: record for record in records(site, pending.execution_id)}


@pytest.mark.parametrize("how", LONG)
def test_r112_nothing_is_sent_on_a_snapshot_that_is_older_than_a_lease(
    site: StoppingSite, pay: PaymentsServer, how: dict[str, float]
) -> None:
    """R112, R076: between the authoritative read and the consumption somebody else pays the order back; approval and
    deadline go on."""
    mine, call, _ = approved(site, "patient")

    async def act() -> None:
        await moved(site, 0.0, **how)()
        other = await rig.adapter(pay.url).invoke(rig.refund(mine, "100.00", key="another"))
        assert other.sent is Sent.ANSWERED, other

    site.boundaries.at("consume:before", act)
    answer = told(site, call)
    assert isinstance(answer, CallError), answer
    # The version that the approvers were shown is no longer the target's (APV-05).
    assert (answer.reason, answer.consumed) == ("BINDING_CHANGED", False)
    assert [effect["effect_key"] for effect in effects(pay, mine)] == ["another"]


@pytest.mark.parametrize("how", LONG)
@pytest.mark.parametrize(("operation", "point"), [(APPROVED, "lease:before"), (AT_ONCE, "preflight:before")])
def test_mcp_13_a_tool_that_became_another_before_the_lease_is_not_called(
    site: StoppingSite, pay: PaymentsServer, operation: str, point: str, how: dict[str, float]
) -> None:
    """MCP-13, R032: between the look at its definition, that of stage 5 or where nobody is waited for that of stage 3,
    and the lease, which bounds how old a look may be."""
    if operation == APPROVED:
        mine, call, _ = approved(site, "patient")
    else:
        mine = order()
        call = refund_in("staging", mine, key=mine, operation=operation)

    async def act() -> None:
        await moved(site, 0.0, **how)()
        await asyncio.to_thread(pay.control, swap_definition="Also tells everybody.")

    site.boundaries.at(point, act)
    answer = told(site, call)
    assert isinstance(answer, CallError), answer
    assert (answer.reason, answer.consumed) == ("BINDING_CHANGED", False)
    assert effects(pay, mine) == []
