"""The children of the embedded engine: killed, crashed, starved and crowded, and the next question is answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uvloop

from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.embedded.pool import EmbeddedLimits
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    PATIENT,
    RUNAWAY,
    children,
    deciding,
    document,
    embedded,
    ended,
    running,
    until,
)

# Every evaluation recurses through the chain, natively: the stack of the child ends before the chain does.
DEEP = [f"r{i} := r{i + 1} if true" for i in range(4_000)]
BOMB = f"""result := {ALLOW} if {{
	input.action.type == "bomb"
	xs := numbers.range(1, 300)
	count([[a, b, c] | some a in xs; some b in xs; some c in xs]) > 1
}}"""


async def reason_of(engine, given: dict) -> Reason:
    with pytest.raises(PolicyFailure) as raised:
        await engine.evaluate(DECISION, given)
    return raised.value.reason


async def test_pol_04_without_a_policy_nothing_is_ready_and_everything_is_denied(tmp_path: Path) -> None:
    """R110: missing at the start is POLICY_UNDEFINED, not an allowance."""
    engine = embedded()
    assert not engine.status().ready
    assert await reason_of(engine, document()) is Reason.POLICY_UNDEFINED
    await engine.close()


async def test_pol_13_child_killed_in_the_middle_of_a_question(tmp_path: Path) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY)) as engine:
        await until(lambda: len(children()) == 2)
        question = asyncio.create_task(reason_of(engine, document("slow")))
        await until(lambda: any(busy(pid) for pid in children()))
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        assert await question is Reason.POLICY_DOWN
        with contextlib.suppress(PolicyFailure):  # the spare was killed too: the question that meets its end is denied
            assert (await engine.evaluate(DECISION, document("other"))).result["effect"] == "deny"
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


def busy(pid: int) -> bool:
    """Whether a child burns processor time: more than two seconds' worth of ticks cannot be start-up."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11])
    return ticks > 2 * os.sysconf("SC_CLK_TCK")


async def test_pol_13_idle_children_killed(tmp_path: Path) -> None:
    """All of them, the spare too: at most the question that meets their end is denied, the next finds new ones."""
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        await until(lambda: len(children()) == 2)
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(PolicyFailure):
            assert (await engine.evaluate(DECISION, document("other"))).result["effect"] == "deny"
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


async def test_pol_13_chain_of_rules_that_overflows_the_stack(tmp_path: Path) -> None:
    rule = f'result := {ALLOW} if {{\n\tinput.action.type == "deep"\n\tr0\n}}'
    chain = deciding(ALLOW_REFUND, rule, *DEEP, f"r{len(DEEP)} if true")
    async with running(tmp_path / "p", chain) as engine:
        assert await reason_of(engine, document("deep")) is Reason.POLICY_DOWN
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


async def test_pol_13_no_child_can_be_started_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = EmbeddedLimits(evaluate_seconds=0.5, load_seconds=60.0)
    async with running(tmp_path / "p", deciding(ALLOW_REFUND), limits) as engine:
        await until(lambda: len(children()) == 2)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            assert await reason_of(engine, document("refund")) is Reason.POLICY_DOWN
        monkeypatch.undo()

        async def heals() -> bool:
            with contextlib.suppress(PolicyFailure):
                return (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
            return False

        async with asyncio.timeout(60):
            while not await heals():
                await asyncio.sleep(0.01)


async def test_memory_bomb_is_ended_by_the_limit(tmp_path: Path) -> None:
    limits = EmbeddedLimits(evaluate_seconds=60.0, load_seconds=60.0, memory_mib=256)
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, BOMB), limits) as engine:
        assert await reason_of(engine, document("bomb")) is Reason.POLICY_DOWN
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


async def test_burst_is_answered_in_order_of_arrival(tmp_path: Path) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        kinds = ["refund", "other"] * 32
        decisions = await asyncio.gather(*(engine.evaluate(DECISION, document(kind)) for kind in kinds))
        assert [d.result["effect"] for d in decisions] == ["allow", "deny"] * 32
        assert len({d.decision_id for d in decisions}) == 64


async def test_burst_behind_a_runaway_has_its_deadline_in_the_queue_too(tmp_path: Path) -> None:
    limits = EmbeddedLimits(evaluate_seconds=0.5, load_seconds=60.0)
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY), limits) as engine:
        await until(lambda: len(children()) == 2)
        questions = [document("slow"), *[document("refund") for _ in range(63)]]
        async with asyncio.timeout(30):
            answers = await asyncio.gather(
                *(engine.evaluate(DECISION, each) for each in questions), return_exceptions=True
            )
        failed = [answer for answer in answers if isinstance(answer, PolicyFailure)]
        assert failed[0] is answers[0]
        assert failed[0].reason is Reason.POLICY_TIMEOUT
        assert {failure.reason for failure in failed} <= {Reason.POLICY_TIMEOUT, Reason.POLICY_DOWN}
        # Those whose time was not over when the spare took the place are answered by it.
        assert {answer.result["effect"] for answer in answers if answer not in failed} <= {"allow"}


async def test_what_waits_behind_a_bomb_is_asked_of_another_child(tmp_path: Path) -> None:
    """A question that ends its child ends no other question, wherever that one waited."""
    limits = EmbeddedLimits(evaluate_seconds=60.0, load_seconds=60.0, memory_mib=256)
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, BOMB), limits) as engine:
        kinds = ["bomb", "refund", "other", "refund", "refund", "other", "refund"]
        answers = await asyncio.gather(
            *(engine.evaluate(DECISION, document(kind)) for kind in kinds), return_exceptions=True
        )
    assert isinstance(answers[0], PolicyFailure)
    assert answers[0].reason is Reason.POLICY_DOWN
    said = [answer.result["effect"] for answer in answers[1:] if not isinstance(answer, BaseException)]
    assert said == ["allow", "deny", "allow", "allow", "deny", "allow"]


async def test_an_idle_child_that_was_killed_costs_no_question(tmp_path: Path) -> None:
    """Its end shows at the socket when the next question comes, if not before; the spare answers."""
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        await until(lambda: len(children()) == 2)
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
        victim = min(children())
        os.kill(victim, signal.SIGKILL)
        await until(lambda: ended(victim))
        assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"


async def test_cancelled_question_harms_no_other(tmp_path: Path) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        questions = [asyncio.create_task(engine.evaluate(DECISION, document("refund"))) for _ in range(8)]
        await asyncio.sleep(0)
        for question in questions[:4]:
            question.cancel()
        answers = await asyncio.gather(*questions[4:])
        assert [answer.result["effect"] for answer in answers] == ["allow"] * 4


async def test_two_workers_answer_beside_a_runaway(tmp_path: Path) -> None:
    limits = EmbeddedLimits(evaluate_seconds=20.0, load_seconds=60.0, workers=2)
    async with running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY), limits) as engine:
        slow = asyncio.create_task(engine.evaluate(DECISION, document("slow")))
        await asyncio.sleep(0)
        for _ in range(5):
            assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
        assert not slow.done()
        slow.cancel()


async def test_close_leaves_no_child(tmp_path: Path) -> None:
    async with running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        await until(lambda: len(children()) == 2)
        await engine.close()
        assert not children()


async def test_child_has_neither_environment_nor_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBLOCKD_TEST_SECRET", "hunter2")
    with (tmp_path / "key").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        async with running(tmp_path / "p", deciding(ALLOW_REFUND)):
            await until(lambda: len(children()) == 2 and all(map(sealed, children())))
            for pid in children():
                assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()
                assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
                assert os.readlink(f"/proc/{pid}/cwd") == "/"
                bounds = limits_of(pid)
                assert bounds["Max address space"] == PATIENT.memory_mib << 20
                assert bounds["Max core file size"] == bounds["Max file size"] == 0


def limits_of(pid: int) -> dict[str, int]:
    """Soft limits by the kernel's names; those without a limit are left out."""
    rows = [re.split(r"  +", line) for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]]
    return {row[0]: int(row[1]) for row in rows if row[1].isdigit()}


def sealed(pid: int) -> bool:
    """Whether a child has taken its last limit: no descriptor beyond the three that it has."""
    return limits_of(pid)["Max open files"] == 3


PARENT = """
import asyncio, pathlib, sys
from tests.contract.policy.support import ALLOW_REFUND, deciding, document, running
from kblockd.policy.deciding.entrypoints import DECISION
async def main():
    async with running(pathlib.Path(sys.argv[1]), deciding(ALLOW_REFUND)) as engine:
        await engine.evaluate(DECISION, document())
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_children_die_with_their_parent(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "p")], stdout=subprocess.PIPE, env={"PYTHONPATH": str(root)}
    )
    try:
        assert parent.stdout is not None
        assert await asyncio.to_thread(parent.stdout.readline) == b"ready\n"
        await until(lambda: len(children(parent.pid)) == 2)
        orphans = children(parent.pid)
        parent.kill()
        parent.wait()
        await until(lambda: not any(Path(f"/proc/{pid}/environ").exists() and alive(pid) for pid in orphans))
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    except OSError:
        return False


def test_under_uvloop(tmp_path: Path) -> None:
    """The loop that the daemon runs on starts, kills and reaps children as asyncio's own does."""

    async def play() -> None:
        limits = EmbeddedLimits(evaluate_seconds=1.0, load_seconds=60.0)
        async with running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY), limits) as engine:
            await until(lambda: len(children()) == 2)
            assert await reason_of(engine, document("slow")) is Reason.POLICY_TIMEOUT
            assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "allow"
        assert not children()

    uvloop.run(play())


class Standstill(asyncio.Protocol):
    """Keeps the loop for longer than a question may take when a byte comes."""

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        time.sleep(1.0)


def test_a_loop_that_stood_still_loses_no_answer_and_kills_no_child(tmp_path: Path) -> None:
    """uvloop runs its timers before it reads what came meanwhile: the reply of a child that was in time."""

    async def play() -> None:
        limits = EmbeddedLimits(evaluate_seconds=0.4, load_seconds=60.0)
        async with running(tmp_path / "p", deciding(RUNAWAY.replace("500", "40")), limits) as engine:
            await until(lambda: len(children()) == 2)
            before = children()
            ours, theirs = socket.socketpair()
            with theirs:
                ours.setblocking(False)
                transport, _ = await asyncio.get_running_loop().create_connection(Standstill, sock=ours)
                asked = asyncio.create_task(engine.evaluate(DECISION, document("slow")))
                await asyncio.sleep(0)
                theirs.send(b"x")
                assert (await asked).result["effect"] == "allow"
                transport.close()
            assert (await engine.evaluate(DECISION, document("refund"))).result["effect"] == "deny"
            assert children() == before

    uvloop.run(play())
