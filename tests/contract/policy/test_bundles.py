"""A watched archive: a bad one never replaces a good one, whatever engine decides; what decides is what was read."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.bundles.signatures import Trust
from kblockd.policy.deciding.entrypoints import DECISION
from tests.contract.policy.bundles import KeyPair, contents, packed, put, signed, trusting
from tests.contract.policy.support import ALLOW_REFUND, Kind, deciding, document, files
from tests.contract.policy.watched import Watched

RELEASE, NEXT, STRANGER = KeyPair(), KeyPair("next"), KeyPair("stranger")
OLD, NEW = contents(), contents(deciding(ALLOW_REFUND))


@dataclasses.dataclass
class Machine:
    """Its time, and whom it trusts; both may change under a test."""

    now: dt.datetime
    trust: Trust

    def read(self, path: Path) -> Bundle:
        return read(path, self.trust, lambda: self.now)


@pytest.fixture
def machine() -> Machine:
    return Machine(dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC), trusting(RELEASE, NEXT))


@pytest.fixture
async def watched(kind: Kind, tmp_path: Path, machine: Machine) -> AsyncIterator[Watched]:
    """A signed archive that denies everything is in force."""
    it = Watched(put(tmp_path / "b.tar.gz", packed(signed(OLD, RELEASE))), kind, machine.read)
    assert await it.watch.reload()
    async with it.running():
        yield it


async def effect(it: Watched) -> str:
    decision = await it.engine.evaluate(DECISION, document())
    assert decision.revision == it.engine.status().revision
    return str(decision.result["effect"])


def bad() -> dict[str, tuple[bytes, str]]:
    """Archives that would allow, and what is said of each."""
    good = packed(signed(NEW, RELEASE))
    changed = {**signed(OLD, RELEASE), "decision.rego": NEW["decision.rego"]}
    broken = {**NEW, "decision.rego": b"package kblock.decision\nx := {"}
    return {
        "cut": (good[: len(good) // 2], "cut off"),
        "empty": (b"", "is empty"),
        "unsigned": (packed(NEW), "nobody signed"),
        "unknown key": (packed(signed(NEW, STRANGER)), "'stranger' is not configured"),
        "wrong key": (packed(signed(NEW, KeyPair())), "tried: release"),
        "other content": (packed(changed), "signed another content"),
        "unsigned file": (packed({**signed(OLD, RELEASE), "x.rego": b"package x\n"}), "did not sign this file"),
        "missing file": (packed({k: v for k, v in signed(NEW, RELEASE).items() if k != "authz.rego"}), "not there"),
        "another scope": (packed(signed(NEW, RELEASE, scope="x")), "for the scope 'x'"),
        "expired": (packed(signed(NEW, RELEASE, exp=1)), "expired"),
        "signed and broken": (packed(signed(broken, RELEASE)), "decision.rego:2"),
    }


async def test_pol_05_bad_archive_never_replaces_a_good_one(watched: Watched) -> None:
    """Each is refused once, with its reason; the old one decides all the while; then a good one comes into force."""
    old = watched.engine.status().revision
    for count, (name, (data, said)) in enumerate(bad().items(), 1):
        put(watched.path, data)
        for _ in range(3):
            await watched.clock.tick()
        assert len(watched.refused) == count, name
        assert said in str(watched.refused[-1]), name
        status = watched.engine.status()
        assert (status.revision, status.ready) == (old, True)
        assert said in status.last_error
        assert await effect(watched) == "deny"
    put(watched.path, packed(signed(NEW, NEXT)))
    await watched.settles()
    assert watched.signers == ["release", "next"]
    assert watched.engine.status().last_error == ""
    assert await effect(watched) == "allow"


async def test_archive_that_is_written_in_place_is_not_taken_half(watched: Watched) -> None:
    """A look in the middle sees a cut gzip stream, and waits for the next."""
    data = packed(signed(NEW, RELEASE))
    with watched.path.open("wb") as stream:
        stream.write(data[: len(data) // 2])
        stream.flush()
        await watched.clock.tick()
        stream.write(data[len(data) // 2 :])
    await watched.settles()
    assert watched.refused == []
    assert await effect(watched) == "allow"


async def test_same_content_from_another_signer_is_another_activation(watched: Watched) -> None:
    """The ledger must not go on naming a key that is gone; nothing is activated for a new token of the same key."""
    revision = watched.engine.status().revision
    put(watched.path, packed(signed(OLD, RELEASE, iat=1)))
    await watched.settles()
    assert watched.signers == ["release"]
    put(watched.path, packed(signed(OLD, NEXT)))
    await watched.settles()
    assert watched.signers == ["release", "next"]
    assert watched.activated[1] == (revision, revision)


async def test_content_that_is_signed_anew_carries_its_new_signature(
    kind: Kind, tmp_path: Path, machine: Machine
) -> None:
    """It need not be checked again, but what is kept of its activation is the signature that was verified for it."""
    it = Watched(put(tmp_path / "b.tar.gz", packed(signed(OLD, RELEASE, iat=1))), kind, machine.read)
    try:
        first = await it.engine.prepare(it.path)
        put(it.path, packed(signed(OLD, RELEASE, iat=2)))
        second = await it.engine.prepare(it.path)
        assert (second.revision, second.token) == (first.revision, (await it.engine.read(it.path)).token)
        assert second.token != first.token
    finally:
        await it.engine.close()


async def test_signature_that_expires_while_in_force_is_said_and_nothing_stops(
    watched: Watched, machine: Machine
) -> None:
    put(watched.path, packed(signed(NEW, RELEASE, exp=machine.now.timestamp() + 60)))
    await watched.settles()
    machine.now += dt.timedelta(seconds=61)
    for _ in range(4):
        await watched.clock.tick()
    assert len(watched.refused) == 1
    assert "expired" in watched.engine.status().last_error
    assert await effect(watched) == "allow"
    assert not await watched.watch.reload()


async def test_what_decides_is_what_was_verified(kind: Kind, tmp_path: Path, machine: Machine) -> None:
    """The file is another one by the time that the bundle comes into force: nobody opens it again."""
    path = put(tmp_path / "b.tar.gz", packed(signed(OLD, RELEASE)))
    it = Watched(path, kind, machine.read)
    try:
        bundle = await it.engine.prepare(path)
        put(path, packed(NEW))
        await it.engine.activate(bundle)
        assert await effect(it) == "deny"
        path.unlink()
        assert await effect(it) == "deny"
    finally:
        await it.engine.close()


async def test_archive_and_folder_decide_alike(kind: Kind, tmp_path: Path, machine: Machine) -> None:
    """Data from several documents, tests that run and do not decide, and a manifest with roots."""
    rule = ALLOW_REFUND.replace('"refund"', "data.limits.kinds[_]")
    texts = files(decision=deciding(rule)["decision.rego"], a_test__rego="package kblock.a_test\n\ntest_it if true\n")
    content = {name: text.encode() for name, text in texts.items()}
    content |= {"limits/kinds/data.json": b'["refund"]', ".manifest": b'{"roots":["kblock","limits"]}'}
    it = Watched(put(tmp_path / "b.tar.gz", packed(signed(content, RELEASE))), kind, machine.read)
    try:
        assert await it.watch.reload()
        assert await effect(it) == "allow"
        assert (await it.engine.prepare(it.path)).tests == 1
    finally:
        await it.engine.close()
