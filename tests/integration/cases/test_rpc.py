"""Calls that are given up, connections that are cut, and a process that is told to end, twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kblockd.client import Answer, AsyncClient, CallError, Client, Completed, UnavailableError
from kblockd.daemon import GRACE_SECONDS
from tests.crash.daemon.story import Gone, Story, World
from tests.integration.cases.calls import demo
from tests.integration.cases.wire import Proxy
from tests.integration.pipeline.local import effects, order, until
from tests.integration.staged import StagedSite
from tests.records import RecordType
from tests.upstreams.payments import PaymentsServer

MANY = 300
SPARE = 10  # tasks that come and go with whatever the daemon does by itself


def test_rpc_07_calls_that_are_given_up_leave_nothing(staged: StagedSite, pay: PaymentsServer) -> None:
    """RPC-07: hundreds wait for one execution and are cancelled; no task waits on, and the execution ends well."""
    mine, given = order(), threading.Event()
    before = tasks(staged)

    async def hold() -> None:
        await asyncio.to_thread(given.wait, 60)

    staged.boundaries.at("dispatch:before", hold)
    try:
        asyncio.run(given_up(staged, mine))
        until(lambda: tasks(staged) <= before + SPARE)
    finally:
        given.set()
    with staged.client() as agent:
        assert isinstance(agent.execute(demo(mine, mine)), Completed)
    assert len(effects(pay, mine)) == 1


def waiters(site: StagedSite) -> int:
    """Calls that wait for the one execution that runs."""

    async def count() -> int:
        running: list[Any] = [handle.done for handle in site.daemon.supervisor._running.values()] if site.daemon else []
        return sum(len(done._callbacks or ()) for done in running)

    return int(site.run(count()))


def tasks(site: StagedSite) -> int:
    """All tasks of the daemon's loop, whoever waits for them."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    return int(site.run(count()))


async def given_up(site: StagedSite, mine: str) -> None:
    """All of them wait before the first is cancelled."""
    async with AsyncClient(f"unix:{site.socket('agent')}") as agent:
        calls: list[asyncio.Task[Answer]] = []
        for wanted in (1, MANY):  # the others find it under way
            calls += [asyncio.create_task(agent.execute(demo(mine, mine))) for _ in range(wanted - len(calls))]
            while await asyncio.to_thread(waiters, site) < wanted:
                await asyncio.sleep(0.02)
        for call in calls:
            call.cancel()
        assert {type(end) for end in await asyncio.gather(*calls, return_exceptions=True)} == {asyncio.CancelledError}


def test_rpc_10_a_proxy_cuts_the_call(staged: StagedSite, pay: PaymentsServer) -> None:
    """RPC-10: the client is told that it does not know; the same key joins the call that is in flight."""
    mine = order()
    pay.control(stall_seconds=1.5)
    told: list[Answer | CallError] = []
    at = staged.folder / "run" / "proxy.sock"
    with Proxy.to(staged.socket("agent"), at) as proxy, Client(f"unix:{at}") as agent:
        calling = threading.Thread(target=lambda: told.append(execute(agent, mine)))
        calling.start()
        until(lambda: len(effects(pay, mine)) == 1)
        proxy.cut()
        calling.join(60)
    with staged.client() as agent:
        done = agent.execute(demo(mine, mine))
    [cut] = told
    assert isinstance(cut, UnavailableError)
    assert cut.outcome_unknown
    assert isinstance(done, Completed)
    assert done.replayed
    assert len(effects(pay, mine)) == 1


def execute(agent: Client, mine: str) -> Answer | CallError:
    """The answer, or why there is none."""
    try:
        return agent.execute(demo(mine, mine))
    except CallError as error:
        return error


def test_rpc_04_led_13_a_second_signal_corrupts_nothing(world: World) -> None:
    """RPC-04, LED-13: told to end twice while a call is in flight and somebody watches: the stream ends with a status,
    nothing new is taken, exit 0; the next start knows what became of the call."""
    world.site.start()
    world.keep_checkpoint()
    story = Story.new(world)
    with story.running() as answer, world.site.client() as other:
        assert story.pending is not None
        world.payments.control(stall_seconds=1.0)
        watched = other.watch(story.pending.execution_id)
        until(lambda: len(world.effects(story.order)) == 1)
        next(watched)
        daemon = world.site.process
        assert daemon is not None
        daemon.send_signal(signal.SIGTERM)
        with pytest.raises(UnavailableError) as ended:
            list(watched)
        daemon.send_signal(signal.SIGTERM)
        assert ended.value.reason == "SHUTTING_DOWN"
        with pytest.raises((UnavailableError, Gone)):
            Story.new(world).tell()
        assert world.site.wait_dead() == 0
        told = answer.exception(60)
        assert told is None or isinstance(told, UnavailableError)
    world.payments.control(stall_seconds=0.0)
    world.site.start()
    story.check_completed(story.finish())
    assert [record.type for record in story.records()].count(RecordType.SENT) == 1
    world.check_ledger()


def test_rpc_04_a_second_signal_hastens(world: World) -> None:
    """RPC-04: whoever asks twice does not wait for the grace; what is cut is reconciled at the next start."""
    world.site.start()
    world.keep_checkpoint()
    story = Story.new(world, "long")
    world.payments.control(stall_seconds=30.0)
    with story.running() as answer:
        until(lambda: len(world.effects(story.order)) == 1)
        begun = time.monotonic()
        daemon = world.site.process
        assert daemon is not None
        daemon.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # two signals that come together may be one
        daemon.send_signal(signal.SIGTERM)
        assert world.site.wait_dead() == 0
        assert time.monotonic() - begun < GRACE_SECONDS - 5.0
        assert isinstance(answer.exception(60), UnavailableError)
    world.payments.control(stall_seconds=0.0)
    world.site.start()
    story.check_completed(story.finish())
    world.check_ledger()


UNSHARE = ["unshare", "--pid", "--fork", "--kill-child"]


def test_rpc_04_a_signal_ends_it_as_pid_1_too(world: World) -> None:
    """RPC-04: the kernel drops what the first process of a container does not handle; this one does, and exits 0."""
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], check=False).returncode != 0:
        pytest.skip("a process may not be pid 1 of its own name space here")
    world.site.kill()
    command = [*UNSHARE, sys.executable, "-m", "kblockd", "serve", "--config", str(world.site.config)]
    with world.site.log.open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as outer:
        until(lambda: outer.poll() is not None or world.site._healthy())
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().strip()
        assert "NSpid:\t" + f"{inner}\t1\n" in Path(f"/proc/{inner}/status").read_text(), world.site.said()
        os.kill(int(inner), signal.SIGTERM)
        assert outer.wait(60) == 0
