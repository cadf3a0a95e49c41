"""No attempt before a lookup's finality, on a clock that only the test moves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.client.answers import Completed
from tests.harness import approve
from tests.integration.hostile.lanes import Lane, configure
from tests.integration.pipeline.local import LocalSite, ask, body, in_background, refund_in, types, until
from tests.upstreams.misbehaving import Mode

FINAL_SECONDS = 12
ORDER = "o-1"


class Hand:
    """The monotonic clock of the daemon and of its MCP adapter, stopped: nothing runs out but by ``move``."""

    def __init__(self, site: LocalSite) -> None:
        assert site.daemon is not None
        parts: Any = site.daemon.parts
        self._now = parts.clock.monotonic()
        parts.clock._read_monotonic = lambda: self._now
        parts.upstreams["mcp"].read._adapter._monotonic = lambda: self._now

    def move(self, seconds: float) -> None:
        """Time passes."""
        self._now += seconds


@pytest.fixture
def lanes() -> Iterator[list[Lane]]:
    """One upstream an adapter."""
    made = [Lane(adapter, adapter, "refund", 10, FINAL_SECONDS, 10) for adapter in ("http", "mcp")]
    with contextlib.ExitStack() as stack:
        for lane in made:
            stack.enter_context(lane.server)
        yield made


@pytest.fixture
def site(lanes: list[Lane]) -> Iterator[LocalSite]:
    """The daemon over both, in this process."""
    with LocalSite.make() as made:
        configure(made, lanes)
        made.start()
        yield made


def looked_up(lane: Lane, times: int) -> None:
    """Waits until the upstream has said so often more that there is no such effect."""
    before = lookups(lane)
    until(lambda: lookups(lane) >= before + times)


def lookups(lane: Lane) -> int:
    return sum(lane.server.app.is_lookup(request) for request in list(lane.server.requests))


def test_out_02_ver_01_idm_18_nothing_is_sent_before_the_lookup_is_final(site: LocalSite, lanes: list[Lane]) -> None:
    """C2, R190, R206, R207: an absence is asked for again and again, and allows nothing until the contract's seconds
    after the call have passed to the last; then one more call goes out under the same effect key."""
    hand = Hand(site)
    pending = {lane: ask(site, refund_in(lane.name, ORDER, key=lane.name)) for lane in lanes}
    for lane in lanes:
        approve(site, pending[lane].approval_id)
        lane.server.misbehave(Mode.DROP_BEFORE_EFFECT, 1)
    running = [in_background(site, refund_in(lane.name, ORDER, key=lane.name)) for lane in lanes]
    for seconds in (0.0, FINAL_SECONDS - 0.5):
        hand.move(seconds)
        for lane in lanes:
            looked_up(lane, 2)
            assert (len(lane.server.calls), lane.server.effects) == (1, [])
            assert "finding.reconciled" not in types(site, pending[lane].execution_id)
    hand.move(0.5)
    for thread in running:
        thread.join(60)
    with site.client() as agent:
        for lane in lanes:
            done = agent.execute(refund_in(lane.name, ORDER, key=lane.name))
            assert isinstance(done, Completed)
            assert body(site, done.execution_id, "finding.reconciled")["finding"] == "absent"
            [effect] = lane.server.app.refunds.done
            assert effect["key"] == body(site, done.execution_id, "execution.sent")["effect_key"]
            assert types(site, done.execution_id).count("execution.sent") == len(lane.server.calls) == 2
