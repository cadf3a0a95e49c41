"""What fails for want of something: of memory around a commit of an execution, of descriptors for connections.

Wherever it strikes, the ledger decides how it goes on: at most one effect, an end in time, and nothing kept of it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kblockd.client import Client
from kblockd.client.answers import Completed, UpstreamError
from kblockd.client.errors import CallError, UnavailableError
from kblockd.domain.stages import Stage
from kblockd.execution import supervisor
from kblockd.execution.changes import Changes
from kblockd.execution.journal import Journal
from kblockd.rpc.server import MAX_CONNECTIONS
from kblockd.store.protocol import StoreFailed, Ticket
from tests.harness import approve
from tests.integration.pipeline.local import LocalSite, ask, effects, order, refund_in, types, until
from tests.upstreams.payments import PaymentsServer

Commit = Callable[[], Coroutine[Any, Any, Ticket]]


async def before(commit: Commit, patch: pytest.MonkeyPatch) -> Ticket:
    """Nothing was ordered."""
    raise MemoryError


async def ordered(commit: Commit, patch: pytest.MonkeyPatch) -> Ticket:
    """The store has it, the journal does not know yet."""

    def notify(changes: Changes, execution_id: str) -> None:
        patch.undo()
        raise MemoryError

    patch.setattr(Changes, "notify", notify)
    return await commit()


async def durable(commit: Commit, patch: pytest.MonkeyPatch) -> Ticket:
    """It is on disk, and the stage does not come to know it."""
    await (await commit()).durable()
    raise MemoryError


@pytest.mark.parametrize("moment", [before, ordered, durable])
@pytest.mark.parametrize(
    "stage", [Stage.CONSUME, Stage.MARK_SENT, Stage.CLASSIFY, Stage.VERIFY, Stage.SEAL], ids=lambda stage: stage.label
)
def test_r668_a_want_of_memory_around_a_commit_ends_as_the_ledger_says(
    site: LocalSite,
    pay: PaymentsServer,
    stage: Stage,
    moment: Callable[[Commit, pytest.MonkeyPatch], Coroutine[Any, Any, Ticket]],
) -> None:
    """R668: what is consumed goes on at once, and no caller is told that nothing was; no lease and no place is kept."""
    mine = order()
    call = refund_in("production", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    commit, struck = Journal.commit, []

    async def failing(journal: Journal, parts: Any, reached: Stage, *given: Any, **named: Any) -> Ticket:
        if reached is not stage or struck or journal.execution_id != pending.execution_id:
            return await commit(journal, parts, reached, *given, **named)
        struck.append(reached)
        with pytest.MonkeyPatch.context() as inner:
            return await moment(lambda: commit(journal, parts, reached, *given, **named), inner)

    with pytest.MonkeyPatch.context() as patch, site.client() as agent:
        patch.setattr(Journal, "commit", failing)
        if (stage, moment) == (Stage.CONSUME, before):
            with pytest.raises(CallError) as told:
                agent.execute(call)
            assert told.value.reason == "INTERNAL"
            assert "execution.claimed" not in types(site, pending.execution_id)
        answer = agent.execute(call)
    unsent = stage is Stage.MARK_SENT and moment is not before
    assert isinstance(answer, UpstreamError if unsent else Completed), answer
    assert len(effects(pay, mine)) == (0 if unsent else 1)
    assert struck == [stage]
    assert site.daemon is not None
    parts = site.daemon.parts
    assert not parts.leases.live(pending.execution_id)
    assert parts.capacity.running == 0


@pytest.mark.parametrize(
    ("stage", "reason"), [(Stage.CONSUME, "COMMIT_UNKNOWN"), (Stage.CLASSIFY, "STORE_UNAVAILABLE")]
)
def test_r669_a_store_that_cannot_say_how_far_it_came_is_not_spoken_for(
    site: LocalSite, pay: PaymentsServer, stage: Stage, reason: str
) -> None:
    """R669: before the word of the consumption nobody knows whether it was consumed; after it, that it was."""
    mine = order()
    call = refund_in("production", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    commit = Journal.commit

    async def failing(journal: Journal, parts: Any, reached: Stage, *given: Any, **named: Any) -> Ticket:
        if reached is stage and journal.execution_id == pending.execution_id:
            raise MemoryError
        return await commit(journal, parts, reached, *given, **named)

    async def unreadable(*_: object) -> None:
        raise StoreFailed("made up", unknown=False)

    with pytest.MonkeyPatch.context() as patch, site.client() as agent:
        patch.setattr(Journal, "commit", failing)
        patch.setattr(supervisor, "journal_of", unreadable)
        with pytest.raises(CallError) as told:
            agent.execute(call)
    assert (told.value.reason, bool(told.value.consumed)) == (reason, stage is Stage.CLASSIFY)
    with site.client() as agent:
        assert isinstance(agent.execute(call), Completed)
    assert len(effects(pay, mine)) == 1


def _gone(connection: socket.socket) -> bool:
    """Whether the daemon has closed it; of one that is open there is only gRPC's greeting to read."""
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_r174_one_caller_cannot_take_the_connections_of_the_others(site: LocalSite) -> None:
    """R174: beyond a bound a listener takes no more, so that the daemon keeps descriptors for approvers, upstreams and
    the ledger; once they are closed the listener serves again."""
    more = 40
    with contextlib.ExitStack() as opened:
        connections = []
        for _ in range(MAX_CONNECTIONS + more):
            connection = opened.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(site.socket("agent")))
            connection.setblocking(False)
            connections.append(connection)
        until(lambda: sum(map(_gone, connections)) >= more, 20)
        with site.client("lead") as approver:
            approver.approvals()
    with site.client() as agent:
        until(lambda: _answers(agent), 20)


def _answers(agent: Client) -> bool:
    try:
        agent.list()
    except UnavailableError:
        return False
    return True
