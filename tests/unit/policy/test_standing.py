"""What the daemon says of its policy beside its store: who asked, what came of it, and what is in force."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from pathlib import Path

import pytest

from kblockd.policy.activation.standing import NAME, PolicyStanding, StandingFile, read
from kblockd.policy.deciding import PolicyStatus
from kblockd.policy.faults import BundleFault, BundleRefused
from kblockd.store.lock import DirectoryLock, holder_token

AT = "2026-11-29T10:00:00.000000Z"
FAULT = BundleFault("decision.rego", 7, 1, "it is wrong", "correct the rule")


class Clock:
    """Stands still."""

    def now(self) -> dt.datetime:
        return dt.datetime(2026, 11, 29, 10, tzinfo=dt.UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Engine:
    """Only its status counts here."""

    def __init__(self, revision: str = "") -> None:
        self.revision = revision
        self.last_error = ""

    def status(self) -> PolicyStatus:
        return PolicyStatus("embedded", self.revision, bool(self.revision), self.last_error)

    async def evaluate(self, entrypoint: str, document: object) -> object:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def made(folder: Path, engine: Engine) -> StandingFile:
    return StandingFile(folder, engine, Clock())  # type: ignore[arg-type]  # evaluate is never asked


def now(folder: Path) -> PolicyStanding:
    found = read(folder)
    assert found is not None
    return found


async def test_an_activation_names_who_asked_for_it(tmp_path: Path) -> None:
    engine = Engine()
    file = made(tmp_path, engine)

    async def activate() -> bool:
        await file.activated("r1", AT, "ops")
        engine.revision = "r1"
        return True

    assert await file.reload(activate, "start") is True
    found = now(tmp_path)
    assert (found.revision, found.since, found.by, found.signer) == ("r1", AT, "start", "ops")
    assert (found.begun, found.ended, found.listens) == (1, 1, False)
    await file.activated("r2", AT, "")  # the watch, by itself
    assert (now(tmp_path).revision, now(tmp_path).by) == ("r2", "poll")
    await file.listening()
    assert now(tmp_path).listens is True


async def test_a_refusal_stays_known_until_the_next_and_over_a_restart(tmp_path: Path) -> None:
    """POL-05: an update that failed is never forgotten silently."""
    file = made(tmp_path, Engine("r1"))

    async def refuse() -> bool:
        await file.refused(BundleRefused([FAULT], revision="bad"))
        return False

    assert await file.reload(refuse, "reload") is False
    attempt = now(tmp_path).attempt
    assert attempt is not None
    assert (attempt.by, attempt.outcome, attempt.revision, attempt.faults) == ("reload", "refused", "bad", (FAULT,))
    again = made(tmp_path, Engine("r1"))
    await again.reload(_nothing_new, "start")
    assert now(tmp_path).refused == attempt
    assert now(tmp_path).attempt != attempt


async def _nothing_new() -> bool:
    return True


async def test_an_attempt_that_raises_has_ended_and_failed(tmp_path: Path) -> None:
    """Whoever waits for it is told, and the error goes where it went."""
    file = made(tmp_path, Engine())

    async def fail() -> bool:
        raise RuntimeError("secret")

    with pytest.raises(RuntimeError):
        await file.reload(fail, "reload")
    found = now(tmp_path)
    assert (found.begun, found.ended) == (1, 1)
    assert found.attempt is not None
    assert (found.attempt.outcome, found.attempt.message) == ("failed", "RuntimeError")
    assert "secret" not in (tmp_path / NAME).read_text()


async def test_an_attempt_that_the_stop_of_the_daemon_ends_leaves_what_is_in_force(tmp_path: Path) -> None:
    """Its engine is closed by then and knows of no revision; the next life must still know who brought it in."""
    engine = Engine("r1")
    file = made(tmp_path, engine)
    await file.activated("r1", AT, "")
    begun = asyncio.Event()

    async def hang() -> bool:
        engine.revision = ""
        begun.set()
        await asyncio.Event().wait()
        return True

    asked = asyncio.create_task(file.reload(hang, "reload"))
    await begun.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (now(tmp_path).revision, now(tmp_path).since, now(tmp_path).by) == ("r1", AT, "poll")


async def test_what_the_watch_does_meanwhile_is_not_taken_for_the_attempt_that_was_asked_for(tmp_path: Path) -> None:
    file = made(tmp_path, Engine("r1"))
    begun, seen = asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        await begun.wait()
        await file.activated("r2", AT, "")
        seen.set()

    async def slow() -> bool:
        begun.set()
        await seen.wait()
        return True

    watching = asyncio.create_task(watch())
    await file.reload(slow, "reload")
    await watching
    found = now(tmp_path)
    assert (found.by, found.revision) == ("poll", "r2")
    assert found.attempt is not None
    assert (found.attempt.by, found.attempt.outcome) == ("reload", "unchanged")


async def test_a_restart_with_the_same_activation_keeps_who_asked_for_it(tmp_path: Path) -> None:
    first = made(tmp_path, Engine("r1"))
    await first.activated("r1", AT, "")  # seen by the watch
    second = made(tmp_path, Engine("r1"))

    async def activate() -> bool:
        await second.activated("r1", AT, "")
        return True

    await second.reload(activate, "start")
    assert now(tmp_path).by == "poll"


async def test_it_names_the_life_of_the_daemon_that_wrote_it(tmp_path: Path) -> None:
    """The next one may have the same pid."""
    for _ in range(2):
        lock = DirectoryLock(tmp_path)
        file = made(tmp_path, Engine("r1"))
        before = read(tmp_path)
        assert before is None or before.life != holder_token(tmp_path)
        await file.listening()
        assert now(tmp_path).life == holder_token(tmp_path) != ""
        lock.release()


async def test_what_an_earlier_version_wrote_is_read(tmp_path: Path) -> None:
    """It knew of no lives."""
    await made(tmp_path, Engine("r1")).activated("r1", AT, "ops")
    row = json.loads((tmp_path / NAME).read_text())
    del row["life"]
    (tmp_path / NAME).write_text(json.dumps(row))
    assert (now(tmp_path).revision, now(tmp_path).life) == ("r1", "")


async def test_an_engine_that_left_its_revision_has_nothing_in_force(tmp_path: Path) -> None:
    engine = Engine("r1")
    file = made(tmp_path, engine)
    await file.activated("r1", AT, "")
    engine.revision = ""
    await file.refused(BundleRefused([FAULT]))
    assert (now(tmp_path).revision, now(tmp_path).since) == ("", "")


async def test_a_folder_that_cannot_be_written_keeps_no_policy_from_its_place(tmp_path: Path) -> None:
    file = made(tmp_path / "gone", Engine("r1"))
    assert await file.reload(_nothing_new, "reload") is True
    assert read(tmp_path / "gone") is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}', '{"pid": 1, "engine": "x", "attempt": {}}'])
def test_a_file_that_no_daemon_wrote_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert read(tmp_path) is None


async def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    await made(tmp_path, Engine()).listening()
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0
    assert json.loads((tmp_path / NAME).read_text())["engine"] == "embedded"
    assert [each.name for each in tmp_path.iterdir()] == [NAME]
