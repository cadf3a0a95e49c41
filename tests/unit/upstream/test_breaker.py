"""The circuit breaker with a clock driven by hand."""

from __future__ import annotations

import pytest

from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.breaker import CircuitBreaker
from kblockd.upstream.model import BreakerLimits

LOST = Outcome(Sent.LOST, code="UPSTREAM_TIMEOUT")
REFUSED = Outcome(Sent.NOT_SENT, code="CONNECT_FAILED")


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _breaker() -> tuple[CircuitBreaker, Hand]:
    clock = Hand()
    return CircuitBreaker(BreakerLimits(failures=3, open_seconds=30), clock), clock


def test_r203_opens_after_failures_in_a_row_and_probes_once() -> None:
    """R203: closed, open, half-open with one probe, and closed again by an answer."""
    breaker, clock = _breaker()
    for outcome in (LOST, REFUSED):
        breaker.observe(outcome)
        assert breaker.allow()
    breaker.observe(LOST)
    assert breaker.is_open
    assert not breaker.allow()
    clock.now = 29.9
    assert not breaker.allow()
    clock.now = 30
    assert breaker.allow()
    assert not breaker.allow()  # one probe
    breaker.observe(LOST)
    clock.now = 59.9
    assert not breaker.allow()
    clock.now = 60
    assert breaker.allow()
    breaker.observe(Outcome(Sent.ANSWERED, is_error=True))
    assert not breaker.is_open
    assert breaker.allow()


def test_a_probe_that_never_reports_does_not_close_the_door_for_ever() -> None:
    """Another check may refuse the call that got the probe."""
    breaker, clock = _breaker()
    for _ in range(3):
        breaker.observe(LOST)
    clock.now = 30
    assert breaker.allow()
    clock.now = 60
    assert breaker.allow()


@pytest.mark.parametrize("sent", [Sent.ANSWERED, Sent.REJECTED, Sent.ACCEPTED])
def test_any_answer_ends_the_row(sent: Sent) -> None:
    """Only failures in a row count."""
    breaker, _ = _breaker()
    for _ in range(5):
        breaker.observe(LOST)
        breaker.observe(LOST)
        breaker.observe(Outcome(sent, operation="o"))
    assert not breaker.is_open


@pytest.mark.parametrize("code", ["UPSTREAM_BUSY", "CREDENTIAL_UNREADABLE", "CREDENTIAL_INVALID", "PLUGIN_RAISED"])
def test_faults_of_our_own_side_do_not_count(code: str) -> None:
    """They say nothing about the upstream."""
    breaker, _ = _breaker()
    for _ in range(10):
        breaker.observe(Outcome(Sent.NOT_SENT, code=code))
    assert not breaker.is_open
