"""Every row of the table with every adapter that can have it, against a real daemon; its cases stand in the tests' ids.

What the caller was answered, what the ledger says and what the upstream itself has seen must agree with the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.harness import Site
from tests.integration.hostile import document
from tests.integration.hostile.table import GROUPS, ROWS
from tests.integration.hostile.trials import Field, Ran, Trial, peak_mib, secrets, trials
from tests.integration.pipeline.local import raw_files, seconds_between
from tests.upstreams.modes import OTHER_ANSWER, Mode

pytestmark = pytest.mark.timeout(300)  # the first test of a play waits for all of it
PLAYS = {"current": ("http", "mcp"), "handshake": ("mcp-2025",)}
BEFORE_EFFECT = ("not_started", "failed_before_side_effect")
DETAIL_BYTES = 2048
MOST_MIB = 256  # the gigabyte of gzip alone would add as much, even a piece at a time


@dataclass(frozen=True)
class Played:
    """All trials of one play, and what became of the daemon."""

    ran: dict[Trial, Ran]
    healthy: bool
    peak_mib: int
    exit_code: int
    ledger_fault: str
    log: str
    leaks: list[str]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """Once for all tests of a play."""
    with Field.open(trials(PLAYS[request.param])) as field:
        field.play()
        site = field.site
        healthy, peak = site._healthy(), peak_mib(site)
        exit_code = site.stop()
        leaks = [name for name, data in raw_files(site) if any(secret in data for secret in secrets())]
        yield Played(field.ran, healthy, peak, exit_code, _ledger_fault(site), site.log.read_text(), leaks)


def _ledger_fault(site: Site) -> str:
    """Empty when every leaf, every row and the whole tree verify."""
    try:
        site.command("ledger", "verify", "--config", str(site.config))
    except RuntimeError as fault:
        return str(fault)
    return ""


def _marks(play: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.soak] if play == "handshake" else []


ALL = [
    pytest.param(play, trial, id=str(trial), marks=_marks(play))
    for play, adapters in PLAYS.items()
    for trial in trials(adapters)
]
EACH = [pytest.param(play, id=play, marks=_marks(play)) for play in PLAYS]


@pytest.mark.parametrize(("played", "trial"), ALL, indirect=["played"], scope="module")
def test_row(played: Played, trial: Trial) -> None:
    """R176, R181, R182, R187, R188, R190, R206, R207, R210 to R222: class, code, state, attempts and effects."""
    ran = played.ran[trial]
    if ran.fault is not None:
        raise ran.fault
    assert ran.seen() == trial.expected
    assert ran.strays == 0
    sent = {body["effect_key"] for body in ran.bodies("execution.sent")}
    assert len(sent) <= 1
    assert {effect["key"] for effect in ran.effects} <= sent
    _nothing_is_sent_before_finality(ran, trial.row.final_seconds)
    assert ran.answer is not None
    assert len(ran.answer.detail.encode()) <= DETAIL_BYTES  # OUT-04
    assert OTHER_ANSWER not in repr(ran.answer.output)  # the first of two answers counts
    assert not any(secret.decode() in repr(ran.answer) for secret in secrets())


def _nothing_is_sent_before_finality(ran: Ran, final_seconds: int) -> None:
    """C2, VER-01: between an attempt whose end is unknown and the next one stands a proved absence, by the daemon's own
    times at least ``final_seconds`` after the marker."""
    for number, record in enumerate(ran.records):
        if record["type"] != "execution.sent" or record["attempt"] == 1:
            continue
        before = {r["type"]: r for r in ran.records[:number] if r["attempt"] == record["attempt"] - 1}
        if before["attempt.outcome"]["body"]["class"] == "failed_before_side_effect":
            continue
        finding: dict[str, Any] = before["finding.reconciled"]
        assert (finding["body"]["finding"], finding["body"]["by"]) == ("absent", "effect_key")
        assert seconds_between(before["execution.sent"]["at"], finding["at"]) >= final_seconds


@pytest.mark.parametrize("played", EACH, indirect=True, scope="module")
def test_the_daemon_does_not_suffer(played: Played) -> None:
    """MCP-01, OUT-04, R201: healthy after all of it, never near the gzip's gigabyte, an orderly end, a whole ledger."""
    assert (played.healthy, played.exit_code) == (True, 0)
    assert played.peak_mib < MOST_MIB
    assert "Traceback" not in played.log
    assert played.ledger_fault == ""


@pytest.mark.parametrize("played", EACH, indirect=True, scope="module")
def test_the_credentials_stand_nowhere(played: Played) -> None:
    """R478, R527, R631, R640: no file of the daemon but its keys, and no log, holds a credential that was echoed."""
    assert played.leaks == []


def test_every_mode_has_a_row() -> None:
    """A way to misbehave that no row uses would look covered."""
    elsewhere = {
        Mode.OK,
        Mode.SCRIPTED,
        Mode.REFUSE,
        Mode.DROP_ON_ACCEPT,
        Mode.LATE,
    }  # tests/contract/adapters, pipeline/test_http.py
    assert {row.mode for row in ROWS} | elsewhere == set(Mode)
    assert sum(map(len, GROUPS.values())) == len(ROWS)


def test_the_table_promises_nothing_false() -> None:
    """An effect is never called absent, none is never called done, and only doubt or damage is held."""
    for trial in trials():
        expected = trial.expected
        if expected.effects:
            assert expected.result not in BEFORE_EFFECT, trial
        if expected.state == "succeeded":
            assert expected.effects == 1, trial
        assert expected.effects <= 1 or expected.state == "held", trial


def test_the_documentation_is_the_table() -> None:
    """kblockd/upstream/hostile.md says what is tested: ``python -m tests.integration.hostile.document`` writes it."""
    assert document.FILE.read_text(encoding="utf-8") == document.written()
