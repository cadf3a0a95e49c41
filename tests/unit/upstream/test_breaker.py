"""The circuit breaker with a clock driven by hand."""

from __future__ import annotations

import ipaddress
import socket
import time

import httpx2
import pytest

from kblockd.admission import on_behalf_of
from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.address_guard import AddressGuard
from kblockd.upstream.breaker import CircuitBreaker
from kblockd.upstream.exchange import Guard, HttpOrigin
from kblockd.upstream.model import BreakerLimits
from kblockd.upstream.wire import NoResources
from tests.unit.upstream.descriptors import descriptors_left

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


@pytest.mark.parametrize("sent", [Sent.ANSWERED, Sent.ACCEPTED])
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


async def test_r203_a_daemon_without_descriptors_does_not_count_against_the_upstream() -> None:
    """R203: the outcome names our own want, nothing was sent, and the breaker of a healthy upstream stays closed."""
    breaker, _ = _breaker()
    with socket.create_server(("127.0.0.1", 0)) as server:
        origin = HttpOrigin("http", "127.0.0.1", server.getsockname()[1])
        guard = Guard(origin, AddressGuard([ipaddress.ip_network("127.0.0.0/8")]).connect, None, 1 << 20)
        with pytest.raises(httpx2.ReadTimeout):  # the name is known and a connection possible
            await guard.exchange(time.monotonic() + 0.3).send("GET", b"/", [(b"Host", b"x")], b"")
        for _ in range(3):
            exchange = guard.exchange(time.monotonic() + 10)
            with descriptors_left(0), pytest.raises(NoResources):
                await exchange.send("POST", b"/", [], b"{}")
            assert (exchange.tampered, exchange.bytes_written) == ("LOCAL_RESOURCES", 0)
            breaker.observe(Outcome(Sent.NOT_SENT, code=exchange.tampered))
    assert not breaker.is_open


def test_one_principals_failures_do_not_shut_the_upstream_to_another() -> None:
    """An agent whose calls are not answered, because of what it asks for, has its own breaker open."""
    breaker, _ = _breaker()
    with on_behalf_of("hostile"):
        for _ in range(3):
            breaker.observe(LOST)
        assert not breaker.allow()
    with on_behalf_of("good"):
        assert breaker.allow()
        breaker.observe(Outcome(Sent.ANSWERED))
    with on_behalf_of("hostile"):
        assert breaker.is_open
