"""Checkpoints and proofs as they are served, over a real store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kblockd._proto.kblock.v1 import ledger_service_pb2 as pb
from kblockd.admission import Admission
from kblockd.domain.principal import View
from kblockd.domain.settings import Shares
from kblockd.ledger import checkpoint, merkle, tlog_proof
from kblockd.ledger.ledger import MAX_READ, Ledger, LedgerEntry
from kblockd.ledger.merkle import MerkleTree
from kblockd.rpc.identity import Caller
from kblockd.rpc.services.ledger import LedgerService
from kblockd.store.protocol import Key
from kblockd.store.rocks import RocksStore
from kblockd.telemetry.recorder import Trace
from tests.contract.store.backends import Gate
from tests.contract.store.folding import decode, fold, put, record
from tests.unit.ledger import naive
from tests.unit.ledger.keys import TestSigner
from tests.unit.rpc.fakes import AGENT, FakeClock, FakeExecutions

ORIGIN = "kblockd.example/prod/1"
SIGNER = TestSigner(1)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def store(tmp_path: Path, gate: Gate) -> AsyncIterator[RocksStore]:
    opened = await RocksStore.open(
        tmp_path, fold=fold, decode=decode, tree=MerkleTree(), failpoints=gate, ballast_bytes=0
    )
    yield opened
    gate.release()
    await opened.close()


@pytest.fixture
def ledger(store: RocksStore) -> Ledger:
    return Ledger(store, ORIGIN, lambda: [SIGNER])


async def append(store: RocksStore, count: int) -> list[bytes]:
    """So many records; all leaves so far."""
    for _ in range(count):
        size = store.size()
        key = ("thing", "a" if size % 2 else "b")
        await (await store.commit([], [record(put(key, n=size), aux=b"aux %d" % size)])).durable()
    leaves = []
    for index in range(store.size()):
        found = await store.leaf(index)
        assert found is not None
        leaves.append(found.leaf)
    return leaves


async def test_every_record_has_a_proof_under_the_newest_checkpoint(store: RocksStore, ledger: Ledger) -> None:
    leaves = await append(store, 21)
    for index, leaf in enumerate(leaves):
        proof = await ledger.proof(index)
        head = tlog_proof.parse(proof.text()).verify(leaf, ORIGIN, [SIGNER.public_key])
        assert (head.size, head.root) == (21, naive.mth(leaves))


async def test_a_proof_of_what_was_just_written_reads_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes come from the tree itself; those that it has dropped are read, and give the same proof."""
    tree = MerkleTree()
    store = await RocksStore.open(tmp_path, fold=fold, tree=tree, ballast_bytes=0)
    ledger = Ledger(store, ORIGIN, lambda: [SIGNER], tree.recent)
    leaves = await append(store, 21)
    read: list[Key] = []
    raw = store.raw

    async def counted(key: Key) -> bytes | None:
        read.append(key)
        return await raw(key)

    monkeypatch.setattr(store, "raw", counted)
    proofs = [await ledger.proof(index) for index in range(21)]
    assert read == []
    for proof, leaf in zip(proofs, leaves, strict=True):
        assert proof.verify(leaf, ORIGIN, [SIGNER.public_key]).root == naive.mth(leaves)
    tree.recent.clear()
    assert [await ledger.proof(index) for index in range(21)] == proofs
    assert read
    await store.close()


def test_as_many_nodes_are_remembered_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merkle, "NODES_REMEMBERED", 8)
    tree = MerkleTree()
    for index in range(100):
        tree.append(index, [b"%d" % index])
        assert len(tree.recent) <= 8 + 7


async def test_a_proof_is_under_the_size_that_was_asked_for(
    store: RocksStore, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer checkpoint, of somebody else's call, is signed while the first node is read for ours."""
    leaves = await append(store, 3)
    raw, reading, newer = store.raw, asyncio.Event(), asyncio.Event()

    async def slow(key: Key) -> bytes | None:
        if not reading.is_set():
            reading.set()
            await newer.wait()
        return await raw(key)

    monkeypatch.setattr(store, "raw", slow)
    service = LedgerService(ledger, FakeExecutions(), Admission(Shares(), FakeClock()))
    caller = Caller(AGENT, View(frozenset(), frozenset()), Trace())
    request = pb.LedgerServiceGetInclusionProofRequest(index=1, tree_size=3)
    asked = asyncio.create_task(service.GetInclusionProof(caller, request))
    await reading.wait()
    await append(store, 1)
    assert (await ledger.checkpoint()).head.size == 4
    newer.set()
    proof = tlog_proof.parse((await asked).tlog_proof)
    head = proof.verify(leaves[1], ORIGIN, [SIGNER.public_key])
    assert (head.size, head.root) == (3, naive.mth(leaves))


async def test_checkpoints_are_consistent_with_all_that_came_before(store: RocksStore, ledger: Ledger) -> None:
    heads = [(await ledger.checkpoint()).head]
    assert (heads[0].size, heads[0].root) == (0, merkle.EMPTY_ROOT)
    for step in (1, 1, 3, 8, 4):
        await append(store, step)
        signed = await ledger.checkpoint()
        assert checkpoint.verify(signed.note, ORIGIN, [SIGNER.public_key]) == signed.head
        assert signed.head.root == store.head().root
        heads.append(signed.head)
    for old in heads:
        for new in heads:
            if old.size <= new.size:
                proof = await ledger.consistency(old.size, new.size)
                merkle.verify_consistency(old.size, old.root, new.size, new.root, proof)


async def test_a_checkpoint_covers_only_what_is_durable(store: RocksStore, ledger: Ledger, gate: Gate) -> None:
    """Evidence, Ledger: signed only over what the synced head file holds."""
    leaves = await append(store, 5)
    gate.hold()
    ticket = await store.commit([], [record(), record()], label="held")
    await asyncio.sleep(0.01)
    signed = await ledger.checkpoint()
    assert (signed.head.size, signed.head.root) == (5, naive.mth(leaves))
    for use in (ledger.root(6), ledger.inclusion(5, 6), ledger.consistency(5, 6), ledger.read_all([5])):
        with pytest.raises(ValueError, match=r"durable|not in the ledger"):
            await use
    with pytest.raises(ValueError, match="not in a tree"):
        await ledger.proof(5)
    gate.release()
    await ticket.durable()
    assert (await ledger.checkpoint()).head.size == 7


async def test_a_checkpoint_is_signed_once_a_size_and_key(store: RocksStore) -> None:
    class Counting(TestSigner):
        signed = 0

        def sign(self, message: bytes) -> bytes:
            self.signed += 1
            return super().sign(message)

    one, two = Counting(1), Counting(2)
    active = [one]
    ledger = Ledger(store, ORIGIN, lambda: active)
    first = await ledger.checkpoint()
    assert await ledger.checkpoint() is first
    await append(store, 1)
    assert (await ledger.checkpoint()).head.size == 1
    assert one.signed == 2
    active.append(two)
    rotating = await ledger.checkpoint()
    for key in (one.public_key, two.public_key):
        assert checkpoint.verify(rotating.note, ORIGIN, [key]).size == 1


async def test_a_checkpoint_is_signed_by_the_thread_that_has_synced_its_head(store: RocksStore, gate: Gate) -> None:
    """And known to nobody before the loop knows that so much is durable."""
    threads: list[str] = []

    class Named(TestSigner):
        def sign(self, message: bytes) -> bytes:
            threads.append(threading.current_thread().name)
            return super().sign(message)

    signer = Named(1)
    ledger = Ledger(store, ORIGIN, lambda: [signer])
    store.when_headed(lambda head, labels: ledger.sign_head(head.size, head.root) if "seal" in labels else None)
    await append(store, 1)
    assert threads == []
    ticket = await store.commit([], [record()], label="seal")
    await ticket.durable()
    proof = await ledger.proof(ticket.first_index)
    assert threads == ["kblockd-committer"]
    found = await store.leaf(ticket.first_index)
    assert found is not None
    head = proof.verify(found.leaf, ORIGIN, [signer.public_key])
    assert (head.size, head.root) == (2, store.head().root)


async def test_a_key_that_cannot_be_used_fails_who_asks_and_not_the_write(store: RocksStore) -> None:
    class Gone(TestSigner):
        def sign(self, message: bytes) -> bytes:
            raise OSError("the key is gone")

    ledger = Ledger(store, ORIGIN, lambda: [Gone(1)])
    store.when_headed(lambda head, _: ledger.sign_head(head.size, head.root))
    await append(store, 2)
    with pytest.raises(OSError, match="the key is gone"):
        await ledger.proof(1)
    assert store.size() == 2


async def test_records_are_read_in_order_and_by_the_rows_that_list_them(store: RocksStore, ledger: Ledger) -> None:
    leaves = await append(store, 9)
    entries = await ledger.read(4, limit=3)
    assert entries == [LedgerEntry(i, leaves[i], b"aux %d" % i) for i in (4, 5, 6)]
    assert [e.index for e in await ledger.read(7)] == [7, 8]
    assert await ledger.read(9) == []
    assert [e.index for e in await ledger.read_rows(("thing", "a"))] == [1, 3, 5, 7]
    assert [e.index for e in await ledger.read_rows(("thing", "a"), ("thing", "b"))] == list(range(9))
    assert await ledger.read_rows(("thing", "none")) == []


async def test_an_origin_that_cannot_name_a_key_is_refused(store: RocksStore) -> None:
    with pytest.raises(ValueError, match="key name"):
        Ledger(store, "my log", lambda: [SIGNER])


async def test_as_many_rows_as_there_are_under_a_prefix_are_read(store: RocksStore, ledger: Ledger) -> None:
    """An agent that is refused a thousand times pushes no later refusal out of the story of its execution."""
    for number in range(MAX_READ + 5):
        ticket = await store.commit([], [record(put(("refusal", "exe_1", number), n=number))])
    await ticket.durable()
    assert [e.index for e in await ledger.read_rows(("refusal", "exe_1"))] == list(range(MAX_READ + 5))
