"""AGT-06: the first refusal of a kind, principal and minute is a record, the rest are one record with their number."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.admission import Admission, on_behalf_of
from kblockd.domain.errors import Reason
from kblockd.domain.ledger import fold
from kblockd.domain.settings import Limits, Shares
from kblockd.execution import refusals
from kblockd.execution.capacity import Capacity
from kblockd.execution.counting import RefusalCounts
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Payload
from kblockd.store.rocks import RocksStore
from tests.records import Record, read
from tests.unit.domain.bodies import faults
from tests.unit.domain.histories import START, hexdigest

MIB = 1 << 20


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> dt.datetime:
        return START + dt.timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Any]:
    """As much of a daemon as a refusal needs; ``disk`` is what is free, in MiB."""
    store = await RocksStore.open(tmp_path, fold=fold, tree=MerkleTree(), ballast_bytes=0)
    clock, disk = Clock(), SimpleNamespace(mib=1000)
    limits = Limits(free_space_mib=512, per_principal=Shares(records_per_minute=600))
    admission: Any = Admission(limits.per_principal, clock)  # type: ignore[arg-type]  # nobody asks whether it is behind
    yield SimpleNamespace(
        store=store,
        clock=clock,
        disk=disk,
        admission=admission,
        capacity=Capacity(limits, lambda: disk.mib * MIB, clock.monotonic, admission),
        refused=RefusalCounts(),
    )
    await store.close()


async def refuse(parts: Any, number: int, **more: Any) -> None:
    given = {"principal": "agent:a", "tenant": "acme", "method": "/Execute", **more}
    reason = given.pop("reason", Reason.PERMISSION_DENIED)
    for _ in range(number):
        parts.clock.seconds += 0.001
        await refusals.record(parts, reason, **given)


async def on_record(parts: Any) -> list[Record]:
    """Everything that has been ordered."""
    with on_behalf_of(""):
        ticket = await parts.store.commit([], [])
    await ticket.durable()
    leaves = [await parts.store.leaf(index) for index in range(parts.store.size())]
    found = [read(leaf.leaf) for leaf in leaves]
    assert [fault for record in found for fault in faults(record)] == []
    return found


def _counts(records: list[Record]) -> list[tuple[str, int]]:
    return [(record.body["reason"], record.body.get("count", 0)) for record in records]


async def test_agt_06_ten_thousand_refusals_of_a_minute_are_two_records(parts: Any) -> None:
    await refuse(parts, 10_000)
    await refusals.write_counts(parts, parts.clock.monotonic())
    assert _counts(await on_record(parts)) == [("PERMISSION_DENIED", 0)]
    parts.clock.seconds += 60
    await refusals.write_counts(parts, parts.clock.monotonic())
    first, rest = await on_record(parts)
    assert _counts([first, rest]) == [("PERMISSION_DENIED", 0), ("PERMISSION_DENIED", 9_999)]
    assert (rest.tenant, rest.body["principal"]) == ("acme", "agent:a")
    assert first.at < rest.body["since"] < rest.body["until"] < rest.at


async def test_each_minute_has_its_first_record_again(parts: Any) -> None:
    for _ in range(3):
        await refuse(parts, 5)
        parts.clock.seconds += 60
        await refusals.write_counts(parts, parts.clock.monotonic())
    assert _counts(await on_record(parts)) == [("PERMISSION_DENIED", 0), ("PERMISSION_DENIED", 4)] * 3


async def test_a_kind_is_a_reason_a_principal_a_method_and_an_execution(parts: Any) -> None:
    await refuse(parts, 2)
    await refuse(parts, 2, reason=Reason.REPLAY)
    await refuse(parts, 2, principal="agent:b")
    await refuse(parts, 2, tenant="other")
    await refuse(parts, 2, method="/Decide")
    await refuse(parts, 2, execution_id="exe_1")
    assert len(await on_record(parts)) == 6
    await refusals.write_counts(parts)  # the stop writes what is counted so far
    written = (await on_record(parts))[6:]
    assert [record.body["count"] for record in written] == [1] * 6
    assert {record.body["method"] for record in written} == {"/Execute", "/Decide"}
    assert {record.execution for record in written} == {"", "exe_1"}


async def test_a_stop_while_counts_are_written_loses_none_of_the_others(parts: Any, monkeypatch: Any) -> None:
    """The stop ends the task that writes them, then writes what is left."""
    for number in range(5):
        await refuse(parts, 3, execution_id=f"exe_{number}")
    parts.clock.seconds += 60
    reached = asyncio.Event()

    async def never(*_: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as stuck:
        stuck.setattr(parts, "store", SimpleNamespace(commit=never))
        writing = asyncio.ensure_future(refusals.write_counts(parts, parts.clock.monotonic()))
        await reached.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await refusals.write_counts(parts)
    assert sum(record.body.get("count", 0) for record in await on_record(parts)) == 4 * 2


async def test_one_refusal_alone_is_not_counted_as_well(parts: Any) -> None:
    await refuse(parts, 1)
    await refusals.write_counts(parts)
    assert len(await on_record(parts)) == 1


async def test_agt_06_a_stage_that_does_not_name_its_principal_is_counted_for_the_one_it_works_for(parts: Any) -> None:
    """The refusal of a run: on record in nobody's name, counted in the agent's."""
    with on_behalf_of("agent:a"):
        await refuse(parts, 3, principal="", execution_id="exe_1")
    await refusals.write_counts(parts)
    assert [record.body["principal"] for record in await on_record(parts)] == ["", "agent:a"]


async def test_agt_06_nothing_is_recorded_while_the_disk_is_short(parts: Any) -> None:
    """The refusals are counted; the number is written when there is room."""
    parts.disk.mib = 511
    await refuse(parts, 1000)
    for number in range(100):  # of a hundred executions: still one count
        await refuse(parts, 2, execution_id=f"exe_{number}")
    parts.clock.seconds += 120
    await refusals.write_counts(parts, parts.clock.monotonic())
    assert await on_record(parts) == []
    parts.disk.mib = 512
    parts.clock.seconds += 1
    await refusals.write_counts(parts, parts.clock.monotonic())
    assert _counts(await on_record(parts)) == [("PERMISSION_DENIED", 1200)]


async def test_agt_06_kinds_of_one_principal_end_with_its_share_of_records(parts: Any) -> None:
    """A refusal for each of 5,000 executions: as many records as the share has, then one number for all others."""
    for number in range(5_000):
        await refuse(parts, 1, execution_id=f"exe_{number:04}")
    await refuse(parts, 1, principal="agent:b")
    await refusals.write_counts(parts)
    records = await on_record(parts)
    mine = [record for record in records if record.body["principal"] == "agent:a"]
    assert 100 <= len(mine) <= 100 + 5 * 10 + 2  # a burst, what came back in five seconds, and the number
    assert len(mine) - 1 + mine[-1].body["count"] == 5_000
    assert len(records) == len(mine) + 1  # the other agent has its own


async def test_agt_06_payloads_beside_a_refusal_count_as_well(parts: Any) -> None:
    for number in range(100):
        kept = Payload(("payload", "exe", hexdigest(str(number))), b"x" * (1 << 16))
        await refuse(parts, 1, execution_id=f"exe_{number}", payloads=[kept])
    assert len(await on_record(parts)) < 50
