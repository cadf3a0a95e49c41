"""``List`` by index: what it reads is what it answers, whatever the filter; and the index follows from the records."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from kblockd.domain.ledger import fold
from kblockd.domain.ledger.listing import TABLES
from kblockd.domain.principal import View
from kblockd.domain.states import State
from kblockd.ledger import start
from kblockd.ledger.listing import BATCH, newest
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.upgrade import ADDED_TABLES, refolding
from kblockd.ledger.verify import verify
from kblockd.store import schema
from kblockd.store.database import open_view, open_writable
from kblockd.store.protocol import Append, Key, Row, StoreRefused
from kblockd.store.rocks import RocksStore
from kblockd.store.upgrade import upgrade
from tests.records import Record, RecordType
from tests.unit.domain.histories import Records

ALL = View(frozenset({"*"}), frozenset({"*"}))
EXECUTIONS = [str(state) for state in State]
APPROVALS = ["pending", "approved", "denied", "expired", "revoked", "used", "void"]
MANY = 300


class Counted:
    """A store that counts the rows that a list looks through."""

    def __init__(self, store: RocksStore) -> None:
        self._store = store
        self.rows = 0
        self.scans = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scan(self, prefix: Key, **more: Any) -> list[tuple[Key, int, Row]]:
        found = await self._store.scan(prefix, **more)
        self.rows += len(found)
        self.scans += 1
        return found


async def _opened(folder: Path) -> RocksStore:
    return await RocksStore.open(folder, fold=fold, tree=MerkleTree(), ballast_bytes=0, inspect=start.inspect(fold))


async def _written(store: RocksStore, records: list[Record]) -> None:
    for record in records:
        ticket = await store.commit([], [Append(record.leaf())])
    await ticket.durable()


def _story(number: int, agent: str, *, ends: str) -> list[Record]:
    """An execution that was asked for, and: still waits, was denied, or was approved."""
    made = Records(f"exe_{number:05}", "acme" if agent != "agent:z" else "other")
    call = [made.proposed("require_approval", agent=agent, key=f"key-{number}"), made.requested(agent=agent)]
    match ends:
        case "pending":
            return call
        case "denied":
            return [*call, made.decided("deny"), made.ended(RecordType.REJECTED)]
        case _:
            return [*call, made.decided()]


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[RocksStore]:
    """Of agent:a and agent:b many denied ones, among them few that wait or are approved; one of another tenant."""
    store = await _opened(tmp_path)
    for number in range(MANY):
        agent = "agent:a" if number % 3 else "agent:b"
        ends = "pending" if number % 100 == 50 else "approved" if number == 7 else "denied"
        await _written(store, _story(number, agent, ends=ends))
    await _written(store, _story(MANY, "agent:z", ends="pending"))
    yield store
    await store.close()


async def _listed(
    store: Any,
    view: View = ALL,
    states: tuple[str, ...] = (),
    *,
    table: str = "execution",
    after: str = "",
    most: int = 9,
) -> list[str]:
    every = EXECUTIONS if table == "execution" else APPROVALS
    found = []
    async for one in newest(store, table, view, states, every, after):
        found.append(one)
        if len(found) == most:
            break
    return found


@pytest.mark.parametrize("states", [("held",), ("cancelled", "failed")])
async def test_agt_07_a_state_that_nothing_has_costs_nothing(filled: RocksStore, states: tuple[str, ...]) -> None:
    counted = Counted(filled)
    assert await _listed(counted, states=states) == []
    assert counted.rows == 3  # the agents
    assert counted.scans <= 1 + 3 * len(states)


async def test_agt_07_a_view_costs_nothing_for_what_it_does_not_show(filled: RocksStore) -> None:
    counted = Counted(filled)
    only = View(frozenset({"other"}), frozenset({"agent:z"}))
    assert await _listed(counted, only) == [f"exe_{MANY:05}"]
    assert counted.rows == 3 + 1
    assert await _listed(Counted(filled), View(frozenset({"acme"}), frozenset({"agent:z"}))) == []


@pytest.mark.parametrize("table", ["execution", "approval"])
async def test_agt_07_a_list_reads_what_it_answers_and_a_batch_an_agent(filled: RocksStore, table: str) -> None:
    counted = Counted(filled)
    state = "pending_approval" if table == "execution" else "pending"
    prefix = "exe" if table == "execution" else "apr_exe"
    expected = [f"{prefix}_{number:05}" for number in (MANY, 250, 150, 50)]
    assert await _listed(counted, states=(state,), table=table) == expected
    assert counted.rows == 3 + 4
    denied = Counted(filled)
    state = "rejected" if table == "execution" else "denied"
    assert len(await _listed(denied, states=(state,), table=table)) == 9
    assert denied.rows <= 3 + 3 * BATCH


async def test_pages_follow_one_another_without_a_gap(filled: RocksStore) -> None:
    """All filters, against a walk through everything."""
    rows = [(str(key[1]), row) for key, _, row in await filled.scan(("execution",), limit=10_000, reverse=True)]
    views = [
        ALL,
        View(frozenset({"acme"}), frozenset({"*"})),
        View(frozenset({"*"}), frozenset({"agent:a", "agent:z"})),
    ]
    for view, states in itertools.product(views, [(), ("rejected",), ("approved", "pending_approval")]):
        expected = [
            key for key, row in rows if view.shows(row.tenant, row.agent) and (not states or row.state in states)
        ]
        seen: list[str] = []
        while page := await _listed(filled, view, states, after=seen[-1] if seen else "", most=50):
            seen += page
        assert seen == expected


async def test_what_moves_while_it_is_listed_comes_once(filled: RocksStore) -> None:
    """An approval request that lapses during the list is in the list of the lapsed, too."""
    seen = []
    async for one in newest(filled, "execution", ALL, ("pending_approval", "expired"), EXECUTIONS, ""):
        seen.append(one)
        made = Records(one, "other" if one == f"exe_{MANY:05}" else "acme")
        await _written(filled, [made.ended(RecordType.EXPIRED, "TASK_EXPIRED")])
    assert seen == [f"exe_{number:05}" for number in (MANY, 250, 150, 50)]


async def test_the_lists_are_verified_like_every_row(filled: RocksStore, tmp_path: Path) -> None:
    await filled.close()
    with open_view(tmp_path / "store") as view:
        assert verify(view, fold, heads={}).ok
        held = view.get(("listed_execution", "acme", "agent:a", "approved", "exe_00007"))
    assert held is not None


async def test_an_upgrade_adds_the_rows_that_the_fold_would_have_written(filled: RocksStore, tmp_path: Path) -> None:
    """A store from before the lists is refused, because a list without what is older would look complete."""
    await filled.close()
    with open_view(tmp_path / "store") as view:
        stored = {key: (version, row) for table in TABLES for key, version, row in view.rows((table,))}
    _made_old(tmp_path, stored)
    with pytest.raises(StoreRefused, match="kblockd ledger upgrade"):
        await _opened(tmp_path)
    added = upgrade(tmp_path, tree=MerkleTree(), refold=refolding(fold, {}), tables=ADDED_TABLES, scratch_dir=None)
    assert added == len(stored)
    with open_view(tmp_path / "store") as view:
        assert {key: (version, row) for table in TABLES for key, version, row in view.rows((table,))} == stored
        assert verify(view, fold, heads={}).ok
    store = await _opened(tmp_path)
    assert await _listed(store, states=("approved",)) == ["exe_00007"]
    await store.close()


def _made_old(folder: Path, rows: Iterable[Key]) -> None:
    database = open_writable(folder / "store")
    for key in rows:
        database.delete(schema.encode_key_once(key))
    database.put(schema.encode_key(schema.FORMAT_KEY), b"kblockd.store/1")
    database.close()
