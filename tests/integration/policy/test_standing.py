"""``kblockd policy reload`` and ``status`` beside a real daemon: what is in force afterwards, or why not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kblockd.cli.kblockd import kblockd
from kblockd.policy.activation import standing
from kblockd.store.lock import DirectoryLock, holder
from tests.harness import Site
from tests.unit.policy.test_standing import AT, Engine, made

HANG_SECONDS = 60.0
BROKEN = "package kblock.decision\n\nimport rego.v1\n\nresult := nobody(1)\n"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One daemon for the module; each test leaves a good bundle in force."""
    with Site.make() as found:
        found.configure("http://127.0.0.1:9", daemon={"development": {"unpinned_tools": True}})
        found.start()
        yield found


def policy(at: Site | Path, *arguments: str) -> Result:
    """Of a site, or of a configuration."""
    config = at.config if isinstance(at, Site) else at
    return CliRunner().invoke(kblockd, ["policy", *arguments, "--config", str(config)], env={"COLUMNS": "200"})


def as_json(at: Site | Path, *arguments: str) -> tuple[int, Any]:
    done = policy(at, *arguments, "--json")
    return done.exit_code, json.loads(done.stdout)


def folder(site: Site) -> Path:
    return site.config.parent / "policy"


def extra(site: Site, text: str) -> Path:
    """A file beside the shipped ones; no code of the daemon is asked to look at it."""
    file = folder(site) / "extra.rego"
    file.write_text(text)
    return file


def test_pol_04_status_says_what_is_in_force_since_when_and_by_whom(site: Site) -> None:
    code, found = as_json(site, "status")
    assert (code, found["in_force"], found["engine"], found["by"]) == (0, True, "embedded", "start")
    assert found["daemon"] == {"running": True, "pid": site.process.pid if site.process else 0}
    assert found["active"]["revision"] == found["folder"]["revision"] == found["revision"]
    assert found["since"].endswith("Z")
    assert (found["last_refused"], found["last_attempt"]["outcome"]) == (None, "activated")
    said = policy(site, "status").stdout
    assert f"in force: {found['revision']} since {found['since']}, by the start of the daemon" in said


def test_reload_of_what_is_in_force_already_says_so(site: Site) -> None:
    before = as_json(site, "status")[1]
    code, found = as_json(site, "reload")
    assert (code, found["outcome"], found["revision"]) == (0, "unchanged", before["revision"])
    assert (found["since"], found["by"]) == (before["since"], "start")
    assert "nothing changed" in policy(site, "reload").stdout


def test_reload_waits_for_the_new_revision_and_for_its_record(site: Site) -> None:
    """What is said to be in force is what the folder holds, at once: the poll alone would need two looks."""
    file = extra(site, "package kblock.decision\n\nimport rego.v1\n\nextra if input.args.a\n")
    try:
        code, found = as_json(site, "reload")
        bundle = as_json(site, "check")[1]["revision"]
        assert (code, found["revision"]) == (0, bundle)
        assert found["outcome"] in ("activated", "unchanged")  # unchanged: the poll was there first
        assert found["by"] in ("reload", "poll")
        assert as_json(site, "status")[1]["in_force"] is True
    finally:
        file.unlink()
        assert policy(site, "reload").exit_code == 0


def test_pol_05_a_refused_bundle_names_its_places_and_the_old_one_stays(site: Site) -> None:
    """An update that fails is never silent: reload, status and the daemon's log say what and where."""
    before = as_json(site, "status")[1]["revision"]
    file = extra(site, BROKEN)
    try:
        code, found = as_json(site, "reload")
        assert (code, found["outcome"], found["revision"]) == (1, "refused", before)
        (fault,) = found["last_attempt"]["faults"]
        assert (fault["file"], fault["line"]) == ("extra.rego", 5)
        plain = policy(site, "reload")
        assert (plain.exit_code, f"extra.rego:5:{fault['column']}: " in plain.stderr) == (1, True)
        assert f"in force: {before}" in plain.stdout
        said = policy(site, "status")
        assert (said.exit_code, "would be refused" in said.stdout, "last refused at" in said.stdout) == (1, True, True)
        assert as_json(site, "status")[1]["last_refused"]["faults"] == [fault]
    finally:
        file.unlink()
        assert policy(site, "reload").exit_code == 0
    assert as_json(site, "status")[1]["last_refused"]["faults"] == [fault]


def test_an_answer_to_an_earlier_question_is_not_taken_for_ours(site: Site) -> None:
    """Many at once: each waits for an attempt that began after it asked."""
    before = standing.read(site.data)
    assert before is not None
    for _ in range(3):
        assert policy(site, "reload").exit_code == 0
    after = standing.read(site.data)
    assert after is not None
    assert (after.begun, after.ended) == (before.begun + 3, before.ended + 3)


class Lives:
    """A daemon that ends and starts again, each time with the pid of this process, as in a container."""

    def __init__(self, site: Site, data_dir: Path) -> None:
        self.config = site.config.with_name("lives.yaml")
        self.config.write_text(json.dumps({**json.loads(site.config.read_text()), "data_dir": str(data_dir)}))
        self.signals = 0
        self._data_dir = data_dir
        self._lock = DirectoryLock(data_dir)

    def listen(self) -> None:
        """It has a revision in force, and says so."""
        file = made(self._data_dir, Engine("r1"))
        asyncio.run(file.activated("r1", AT, ""))
        asyncio.run(file.listening())

    def start_again(self) -> None:
        """Killed; the next life has come as far as its lock."""
        self.end()
        self._lock = DirectoryLock(self._data_dir)

    def end(self) -> None:
        """The kernel drops the lock."""
        self._lock.release()

    def on_signal(self, *_: object) -> None:
        """SIGHUP ends it, as it does before a daemon listens."""
        self.signals += 1
        self.start_again()


@pytest.fixture
def lives(site: Site, tmp_path: Path) -> Iterator[Lives]:
    """One life that listens."""
    it = Lives(site, tmp_path)
    it.listen()
    before = signal.signal(signal.SIGHUP, it.on_signal)
    yield it
    signal.signal(signal.SIGHUP, before)
    it.end()


def test_what_an_earlier_daemon_had_in_force_is_not_what_a_starting_one_has(lives: Lives) -> None:
    """From its lock to its first attempt a daemon has said nothing yet; what stands there is of another life, even with
    the same pid. Nothing is asked of it: SIGHUP would end it."""
    lives.start_again()
    code, shown = as_json(lives.config, "status")
    assert (code, shown["daemon"]["pid"]) == (1, os.getpid())
    assert (shown["active"], shown["revision"], shown["in_force"]) == ({}, "", False)
    assert "in force: nothing" in policy(lives.config, "status").stdout
    refused = policy(lives.config, "reload")
    assert (refused.exit_code, f"the daemon {os.getpid()} is still starting" in refused.stderr) == (1, True)
    assert lives.signals == 0
    lives.listen()
    assert as_json(lives.config, "status")[1]["revision"] == "r1"


def test_a_daemon_that_has_started_again_meanwhile_is_not_waited_for(lives: Lives) -> None:
    """Nor is it asked again: it reads the bundle as it starts."""
    began = time.monotonic()
    assert as_json(lives.config, "reload", "--timeout", str(HANG_SECONDS)) == (3, {"outcome": "unfinished"})
    assert lives.signals == 1
    assert time.monotonic() - began < HANG_SECONDS / 2


def test_a_daemon_that_stands_still_is_not_waited_for_for_ever(site: Site) -> None:
    assert site.process is not None
    os.kill(site.process.pid, signal.SIGSTOP)
    try:
        code, found = as_json(site, "reload", "--timeout", "0.2")
    finally:
        os.kill(site.process.pid, signal.SIGCONT)
    assert (code, found["outcome"]) == (3, "unfinished")


def test_without_a_daemon_status_reads_the_ledger_and_reload_says_how_to_start(site: Site) -> None:
    """The last of the module: it stops the daemon, and starts it again."""
    in_force = as_json(site, "status")[1]
    site.stop()
    assert holder(site.data) is None
    code, found = as_json(site, "status")
    assert (code, found["daemon"]["running"], found["active"]["revision"]) == (0, False, in_force["revision"])
    assert "daemon:   does not run" in policy(site, "status").stdout
    refused = policy(site, "reload")
    assert (refused.exit_code, "no daemon runs over" in refused.stderr, "kblockd serve" in refused.stderr) == (
        1,
        True,
        True,
    )
    site.start()
    again = as_json(site, "status")[1]
    kept = ("revision", "since", "by", "last_refused")
    assert [again[name] for name in kept] == [in_force[name] for name in kept]  # a restart is no activation
    limit = time.monotonic() + HANG_SECONDS
    while policy(site, "reload").exit_code != 0:  # until it listens
        assert time.monotonic() < limit
