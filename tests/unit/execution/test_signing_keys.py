"""The keys on disk against those of the ledger: what a start takes, and what it refuses with both ids (LOC-04)."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kblockd.domain.errors import FailedPrecondition
from kblockd.domain.ledger import fold, rows
from kblockd.evidence import dsse, keys
from kblockd.evidence.ceremony import add_key, init_keys, retire
from kblockd.evidence.effect_secret import EFFECT_FILE
from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.jwks import KeySet, Role
from kblockd.evidence.keyring import KEYSET_FILE, KeyRing
from kblockd.execution.activate import Activation
from kblockd.execution.signing_keys import check_keys, check_sealable
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.protocol import Store
from kblockd.store.rocks import RocksStore
from tests.unit.rpc.fakes import FakeClock


@dataclass
class Place:
    """A ledger, and the folder of keys beside it."""

    folder: Path
    store: Store

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def root(self) -> Path:
        return self.folder / "root.pem"

    def ring(self) -> KeyRing:
        return KeyRing.load(self.keys)

    async def start(self) -> KeyRing:
        """As the daemon does."""
        ring = self.ring()
        await check_keys(self.store, ring)
        await Activation(self.store, FakeClock()).keys(ring)
        return ring

    async def refused(self) -> str:
        before = self.store.size()
        with pytest.raises(KeysRefused) as refused:
            await self.start()
        assert self.store.size() == before
        return str(refused.value)

    async def active(self, role: Role) -> str:
        found = await self.store.get(rows.active_key(str(role)))
        assert found is not None
        return str(found[1].kid)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """With keys that the ledger knows."""
    (tmp_path / "data").mkdir()
    store = await RocksStore.open(tmp_path / "data", fold=fold, tree=MerkleTree(), ballast_bytes=0)
    made = Place(tmp_path, store)
    init_keys(made.keys, made.root)
    await made.start()
    yield made
    await store.close()


async def test_the_first_start_takes_the_keys_and_the_next_records_nothing(place: Place) -> None:
    ring, size = place.ring(), place.store.size()
    assert [await place.active(role) for role in Role] == [ring.signer(role).key_id for role in Role]
    await place.start()
    assert place.store.size() == size == len(Role) + 1  # and the effect secret, by its public half


async def test_loc_04_keys_of_another_root_are_refused_with_both_ids(place: Place, tmp_path: Path) -> None:
    """Nothing is recorded: the right keys, when they are back, are still the active ones."""
    ours = place.ring()
    place.keys.rename(tmp_path / "ours")
    init_keys(place.keys, tmp_path / "other.pem")
    theirs, said = place.ring(), await place.refused()
    for role in Role:
        both = f"{role} key on disk {theirs.signer(role).key_id}, active in the ledger {ours.signer(role).key_id}"
        assert both in said
    assert "put the keys of this ledger back" in said
    shutil.rmtree(place.keys)
    (tmp_path / "ours").rename(place.keys)
    await place.start()
    assert await place.active(Role.RESULT) == ours.result.key_id


@pytest.mark.parametrize("role", list(Role))
async def test_rcp_08_a_rotation_is_taken_and_its_old_keys_are_not_taken_back(
    place: Place, tmp_path: Path, role: Role
) -> None:
    """LOC-04: a key that came back, with the key set of its time."""
    old = place.ring()
    shutil.copytree(place.keys, tmp_path / "before")
    add_key(place.keys, place.root, role, from_index=place.store.size())
    fresh = await place.start()
    assert await place.active(role) == fresh.signer(role).key_id != old.signer(role).key_id
    shutil.rmtree(place.keys)
    (tmp_path / "before").rename(place.keys)
    said = await place.refused()
    assert "an older key set came back: version 1 on disk, 2 in the ledger" in said
    both = f"{role} key on disk {old.signer(role).key_id}, active in the ledger {fresh.signer(role).key_id}"
    assert both in said


async def test_loc_04_a_key_set_in_which_the_root_lets_a_retired_key_sign_again_is_refused(
    place: Place, tmp_path: Path
) -> None:
    """A range is never lengthened, whoever signs."""
    old = place.ring()
    shutil.copytree(place.keys, tmp_path / "before")
    add_key(place.keys, place.root, Role.RESULT, from_index=place.store.size())
    fresh = await place.start()
    shutil.copy(tmp_path / "before" / "result.pem", place.keys / "result.pem")
    _sign(place, KeySet(3, old.keyset.keys))
    assert f"takes back what the ledger says of key {old.result.key_id}" in await place.refused()
    alive = replace(fresh.keyset.active(Role.RESULT), to_index=place.store.size() + 9)
    again = replace(old.keyset.active(Role.RESULT), from_index=place.store.size() + 10)
    rest = [key for key in old.keyset.keys if key.role is not Role.RESULT]
    _sign(place, KeySet(3, (*rest, alive, again)))
    assert f"takes back what the ledger says of key {old.result.key_id}" in await place.refused()


async def test_two_key_sets_of_one_version_are_refused(place: Place, tmp_path: Path) -> None:
    """Two rotations of one state, in two copies of the folder."""
    shutil.copytree(place.keys, tmp_path / "copy")
    add_key(place.keys, place.root, Role.RESULT, from_index=place.store.size())
    await place.start()
    shutil.rmtree(place.keys)
    (tmp_path / "copy").rename(place.keys)
    add_key(place.keys, place.root, Role.RESULT, from_index=place.store.size())
    assert "two different key sets have version 2" in await place.refused()


async def test_several_rotations_between_two_starts_are_taken(place: Place) -> None:
    size = place.store.size()
    first = add_key(place.keys, place.root, Role.RESULT, from_index=size)
    retire(place.keys, place.root, first.added[0].kid, to_index=size)
    add_key(place.keys, place.root, Role.RESULT, from_index=size + 1)
    assert f"valid from record {size + 1} on, and the ledger has {size}" in await place.refused()
    add_key(place.keys, place.root, Role.LOG, from_index=size)
    assert f"valid from record {size + 1} on" in await place.refused()


async def test_a_start_that_was_cut_off_half_way_through_its_records_is_finished(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the old key's end was recorded and before the new key was."""
    add_key(place.keys, place.root, Role.RESULT, from_index=place.store.size())
    ring = place.ring()
    half = replace(ring, keyset=KeySet(2, ring.keyset.keys[:2]))
    await Activation(place.store, FakeClock()).keys(half)
    await place.start()
    assert await place.active(Role.RESULT) == ring.result.key_id


async def test_loc_04_stage_5_asks_again_and_consumes_nothing(place: Place, tmp_path: Path) -> None:
    ours = place.ring()
    assert await check_sealable(place.store, ours, "exe_1")
    init_keys(tmp_path / "other", tmp_path / "other.pem")
    theirs = KeyRing.load(tmp_path / "other")
    with pytest.raises(FailedPrecondition) as refused:
        await check_sealable(place.store, theirs, "exe_1")
    said = str(refused.value)
    assert theirs.result.key_id in said
    assert ours.result.key_id in said
    assert "Nothing was executed or consumed" in said


def _sign(place: Place, keyset: KeySet) -> None:
    root = keys.read_private(place.root, None, uid=place.root.stat().st_uid)
    keys.replace(place.keys / KEYSET_FILE, dsse.sign(dsse.JWKS_TYPE, keyset.payload(), root))


async def test_evi_15_another_effect_secret_refuses_the_start(place: Place) -> None:
    """EVI-15, LOC-04: with both ids; the ledger never learns more of it than its public half."""
    ring = place.ring()
    other = keys.private_pem(Ed25519PrivateKey.generate(), None)
    keys.replace(place.keys / EFFECT_FILE, other)
    message = await place.refused()
    assert ring.effect.key_id in message
    assert place.ring().effect.key_id in message
    keys.replace(place.keys / EFFECT_FILE, keys.private_pem(_private(ring.effect.seed), None))
    assert (await place.start()).effect == ring.effect


def _private(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)
