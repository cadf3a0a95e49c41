"""A daemon that is paused past its lease, told to stop in the middle of its work, or started twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from kblockd_mcp.settings import HANDSHAKE

from kblockd.client import Answer, CallError, Completed, UnavailableError, rpcs
from kblockd.watchdog import EXIT_STALLED
from tests.crash.daemon.forked import ForkedSite
from tests.crash.daemon.story import ATTEMPTS, Story, World, variant
from tests.harness import SHORT_CLOCKS
from tests.records import Record, RecordType
from tests.upstreams.payments import PaymentsServer

PAST_THE_LEASE = SHORT_CLOCKS["lease_ttl_seconds"] + 0.5
_POLICY = {
    "maxAttempts": 5,
    "initialBackoff": "2s",
    "maxBackoff": "4s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
REPEATING = (
    ("grpc.enable_retries", 1),
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": _POLICY}]})),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.default_authority", "localhost"),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def paused_past_its_lease(world: World) -> None:
    """Waits for the stop that the failpoint asked for, sits out the lease, and lets the daemon go on."""
    daemon = world.site.process
    assert daemon is not None
    daemon.wait_stopped()
    time.sleep(PAST_THE_LEASE)
    daemon.send_signal(signal.SIGCONT)


def fences(records: list[Record], type_: RecordType) -> list[tuple[int, int]]:
    """Of the records of a type, in order."""
    found = [record.body["fence"] for record in records if record.type is type_]
    return [(fence["incarnation"], fence["counter"]) for fence in found]


@pytest.mark.parametrize("failpoint", ["consume:after=stop", "mark_sent:before=stop"])
def test_lse_01_nothing_is_marked_or_sent_under_a_lease_that_ended(world: World, failpoint: str) -> None:
    """LSE-01, LSE-08: a daemon that wakes up past its lease takes a new one first; the old fence sends nothing (R166).
    The watchdog is off, so that the lease alone must hold."""
    world.site.start(failpoint, watchdog=False)
    world.keep_checkpoint()
    story = Story.new(world)
    with story.running() as answer:
        paused_past_its_lease(world)
        story.check_completed(answer.result(60))
    records = story.records()
    claimed, sent = fences(records, RecordType.CLAIMED), fences(records, RecordType.SENT)
    assert len(claimed) == 2
    assert sent == claimed[1:]
    assert claimed[0] < claimed[1]
    world.check_ledger()


@pytest.mark.parametrize("failpoint", ["mark_sent:after=stop", "dispatch:before=stop"])
def test_lse_01_a_marked_call_is_not_sent_past_its_lease(world: World, failpoint: str) -> None:
    """LSE-01: the last look is behind the marker; the attempt counts as not sent, the next has its own lease."""
    world.site.start(failpoint, watchdog=False)
    world.keep_checkpoint()
    story = Story.new(world)
    with story.running() as answer:
        paused_past_its_lease(world)
        story.check_completed(answer.result(60))
    records = story.records()
    assert [record.attempt for record in records if record.type == RecordType.SENT] == [1, 2]
    first = next(record for record in records if record.type == RecordType.ATTEMPT_OUTCOME)
    assert (first.attempt, first.body["sent"], first.body["code"]) == (1, "not_sent", "LEASE_OR_DEADLINE_ENDED")
    world.check_ledger()


def test_lse_01_the_watchdog_ends_what_was_paused(world: World) -> None:
    """LSE-01: whatever woke up does not go on for long; the next start takes the execution up (R165)."""
    world.site.start("mark_sent:before=stop")
    world.keep_checkpoint()
    story = Story.new(world)
    with story.running() as answer:
        paused_past_its_lease(world)
        assert world.site.wait_dead() == EXIT_STALLED
        assert isinstance(answer.exception(60), UnavailableError)
    assert len(world.effects(story.order)) <= 1
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()


def test_rpc_03_a_stop_lets_what_is_in_flight_end(world: World) -> None:
    """RPC-03: five dispatches wait for their answers; exit 0, and each is sealed before it (R469)."""
    world.site.start()
    world.keep_checkpoint()
    world.payments.control(stall_seconds=1.5)
    stories = _approved(world, 5)
    try:
        with ThreadPoolExecutor(5) as threads:
            answers = [threads.submit(_executed, world, story) for story in stories]
            _wait_for_effects(world, stories)
            assert world.site.stop() == 0
            found = [answer.result(60) for answer in answers]
    finally:
        world.payments.control(stall_seconds=0.0)
    assert all(isinstance(answer, Completed) for answer in found), found
    world.site.start("preflight:before=kill")  # nothing is left to do: nobody comes by here
    for story in stories:
        story.check_completed(story.finish())
    world.check_ledger()


def test_rpc_03_what_a_stop_cuts_is_reconciled_at_the_next_start(world: World) -> None:
    """RPC-03, OUT-08: the grace ends before the upstream answers; exit 0, no outcome is invented, no call repeated."""
    world.site.start(constants={"kblockd.daemon.GRACE_SECONDS": 0.5})
    world.keep_checkpoint()
    world.payments.control(stall_seconds=30.0)
    stories = _approved(world, 3)
    try:
        with ThreadPoolExecutor(3) as threads:
            answers = [threads.submit(_executed, world, story) for story in stories]
            _wait_for_effects(world, stories)
            assert world.site.stop() == 0
            assert all(isinstance(answer.result(60), UnavailableError) for answer in answers)
    finally:
        world.payments.control(stall_seconds=0.0)
    world.site.start()
    for story in stories:
        story.check_completed(story.finish())
        assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    world.check_ledger()


def test_led_06_a_second_daemon_is_refused_and_the_first_goes_on(world: World) -> None:
    """LED-06: by the name of the directory and the process; the sockets stay the first one's."""
    world.site.start()
    world.keep_checkpoint()
    daemon = world.site.process
    assert daemon is not None
    story = Story.new(world)
    with story.running() as answer:
        command = [sys.executable, "-m", "kblockd", "serve", "--config", str(world.site.config)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert f"{world.site.data} is in use by process {daemon.pid}" in second.stderr
        story.check_completed(answer.result(60))
    again = Story.new(world)
    again.tell()
    assert again.answered is not None
    again.check_completed(again.answered)
    assert daemon.poll() is None
    world.check_ledger()


def _approved(world: World, count: int) -> list[Story]:
    stories = [Story.new(world) for _ in range(count)]
    with world.site.client() as agent:
        for story in stories:
            story.pending = agent.execute(story.call)
            story.approve()
    return stories


def _executed(world: World, story: Story) -> Answer | CallError:
    with world.site.client() as agent:
        try:
            return agent.execute(story.call)
        except CallError as error:
            return error


def _wait_for_effects(world: World, stories: list[Story]) -> None:
    limit = time.monotonic() + 60
    while not all(world.effects(story.order) for story in stories):
        assert time.monotonic() < limit, "the calls do not reach the upstream"
        time.sleep(0.02)


def test_rpc_10_a_daemon_that_is_busy_for_a_moment_is_not_away(world: World) -> None:
    """RPC-10: a new caller meets a daemon that does not run for a second; it is waited for, nothing is "unknown"."""
    world.site.start()
    world.keep_checkpoint()
    daemon = world.site.process
    assert daemon is not None
    story = Story.new(world)
    daemon.send_signal(signal.SIGSTOP)
    threading.Timer(1.0, os.kill, [daemon.pid, signal.SIGCONT]).start()
    story.tell()
    assert story.answered is not None
    story.check_completed(story.answered)


def test_rpc_06_a_client_library_that_repeats_by_itself(world: World) -> None:
    """RPC-06: the channel's retry policy sends the call again to the next life of the daemon; it joins the first."""
    world.site.start("classify:before=kill")
    world.keep_checkpoint()
    story = Story.new(world)
    with world.site.client() as agent:
        story.pending = agent.execute(story.call)
        story.approve()
    exchange = rpcs.execute(story.call, wait=30.0, margin=30.0)
    with grpc.insecure_channel(f"unix:{world.site.socket('agent')}", options=REPEATING) as channel:
        behaviour: Any = channel.unary_unary(
            exchange.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=exchange.response.FromString,
        )
        waiting = behaviour.future(exchange.request, timeout=60.0)
        assert world.site.wait_dead() == -signal.SIGKILL
        world.site.start()
        answer = exchange.read(waiting.result())
    assert answer.replayed
    story.check_completed(answer)
    assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    world.check_ledger()


@pytest.fixture(scope="module")
def shaking() -> Iterator[World]:
    """An upstream that is asked for a handshake before each call, so that there is something to wait for in a dispatch;
    ``long`` waits for longer than a lease."""
    long = {"execution": {"request_timeout_seconds": 20, "absolute_deadline_seconds": 25}}
    with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
        contracts = {"production": variant("production", ATTEMPTS), "long": variant("long", ATTEMPTS, long)}
        site.configure(payments.url, contracts=contracts, upstream={"settings": {"protocol": HANDSHAKE}})
        site.pin()
        yield World(site, payments)


@pytest.mark.soak
@pytest.mark.parametrize("environment", ["production", "long"])
def test_lse_01_a_call_that_waits_for_a_handshake_is_not_sent_past_its_lease(shaking: World, environment: str) -> None:
    """LSE-01: paused in the middle of stage 11, before the call itself could leave: it does not leave any more."""
    shaking.site.start("dispatch:before=stop", watchdog=False)
    shaking.keep_checkpoint()
    story = Story.new(shaking, environment)
    upstream, daemon = shaking.payments.process, shaking.site.process
    assert upstream is not None
    assert daemon is not None
    with story.running() as answer:
        daemon.wait_stopped()
        upstream.send_signal(signal.SIGSTOP)
        daemon.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # the handshake is under way by now; whichever way it is, nothing may be sent later
        daemon.send_signal(signal.SIGSTOP)
        upstream.send_signal(signal.SIGCONT)
        paused_past_its_lease(shaking)
        story.check_completed(answer.result(60))
    records = story.records()
    first = next(record for record in records if record.type == RecordType.ATTEMPT_OUTCOME)
    assert first.attempt == 1
    assert first.body["sent"] in ("not_sent", "lost")  # what is lost was looked up before the next attempt
    assert [record.attempt for record in records if record.type == RecordType.SENT] == [1, 2]
    shaking.check_ledger()
