"""A real OPA as a child: killed, frozen, starved, refused, replaced; no wrong allowance, and no hand is needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyEngine, PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused, LoadFailed
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.supervised import OpaServer, SupervisedEngine
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    HANG_SECONDS,
    PATIENT,
    RUNAWAY,
    CountingIds,
    Kind,
    RealClock,
    children,
    deciding,
    document,
    files,
    kind_of,
    opa_binary,
    until,
    write,
)

BOMB = f"""result := {ALLOW} if {{
	input.action.type == "bomb"
	xs := numbers.range(1, 400)
	count([[a, b, c, "x"] | some a in xs; some b in xs; some c in xs]) > 1
}}"""


@pytest.fixture
def kind() -> Iterator[Kind]:
    with kind_of("opa") as found:
        yield found


async def effect(engine: PolicyEngine, what: str = "refund") -> str:
    return str((await engine.evaluate(DECISION, document(what))).result["effect"])


async def reason(engine: PolicyEngine, what: str = "refund") -> Reason:
    with pytest.raises(PolicyFailure) as raised:
        await engine.evaluate(DECISION, document(what))
    return raised.value.reason


async def heals(engine: PolicyEngine) -> None:
    """Until the answer is an allowance again."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            with contextlib.suppress(PolicyFailure):
                if await effect(engine) == "allow":
                    return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
async def test_pol_13_opa_killed_or_frozen_in_the_middle_of_decisions(kind: Kind, tmp_path: Path, blow: int) -> None:
    """Three blows under load: an input that is denied is never allowed, and each time it comes back by itself."""
    limits = EmbeddedLimits(evaluate_seconds=2.0, load_seconds=60.0)
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND), limits) as engine:
        reasons: list[Reason] = []
        done = asyncio.Event()

        async def load(what: str, expected: str) -> None:
            while not done.is_set():
                try:
                    assert await effect(engine, what) == expected
                except PolicyFailure as failure:
                    reasons.append(failure.reason)
                await asyncio.sleep(0.002)

        tasks = [asyncio.create_task(load(*pair)) for pair in [("refund", "allow"), ("other", "deny")] * 4]
        for _ in range(3 if blow == signal.SIGKILL else 1):
            (victim,) = kind.children()
            os.kill(victim, blow)
            await until(lambda victim=victim: kind.children() != {victim} and len(kind.children()) == 1)
            await heals(engine)
        done.set()
        await asyncio.gather(*tasks)
        assert set(reasons) <= {Reason.POLICY_DOWN, Reason.POLICY_TIMEOUT}


async def test_pol_13_killed_in_the_middle_of_one_question(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY)) as engine:
        question = asyncio.create_task(reason(engine, "slow"))
        (victim,) = kind.children()
        await until(lambda: busy(victim))
        os.kill(victim, signal.SIGKILL)
        assert await question is Reason.POLICY_DOWN
        await heals(engine)


def busy(pid: int) -> bool:
    """Whether it burns processor time beyond what a start takes."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11])
    return ticks > 2 * os.sysconf("SC_CLK_TCK")


async def test_question_that_times_out_ends_in_opa_too(kind: Kind, tmp_path: Path) -> None:
    """A runaway does not go on after its deadline: the processor is free again, and OPA is the same process."""
    limits = EmbeddedLimits(evaluate_seconds=0.5, load_seconds=60.0)
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY), limits) as engine:
        before = kind.children()
        assert set(await asyncio.gather(*(reason(engine, "slow") for _ in range(5)))) == {Reason.POLICY_TIMEOUT}
        await heals(engine)
        (pid,) = kind.children()

        async def idle() -> bool:
            one = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11]
            await asyncio.sleep(0.3)
            return one == Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11]

        async with asyncio.timeout(HANG_SECONDS):
            while not await idle():
                pass
        assert kind.children() == before


async def test_memory_bomb_is_ended_by_the_limit(kind: Kind, tmp_path: Path) -> None:
    limits = EmbeddedLimits(evaluate_seconds=60.0, load_seconds=60.0, memory_mib=256)
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND, BOMB), limits) as engine:
        assert await reason(engine, "bomb") is Reason.POLICY_DOWN
        await heals(engine)


async def test_pol_13_opa_cannot_be_started_for_a_while(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POLICY_DOWN until it can be; the restart needs nobody."""
    limits = EmbeddedLimits(evaluate_seconds=0.5, load_seconds=60.0)
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND), limits) as engine:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        for pid in kind.children():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not kind.children())
        for _ in range(3):
            assert await reason(engine) is Reason.POLICY_DOWN
        monkeypatch.undo()
        await heals(engine)


async def test_pol_04_without_a_policy_nothing_is_ready(kind: Kind) -> None:
    engine = kind.engine()
    assert not engine.status().ready
    assert await reason(engine) is Reason.POLICY_UNDEFINED
    await engine.close()


@pytest.mark.parametrize(
    "call",
    [
        *("http.send({})", "opa.runtime()", 'rand.intn("a", 1)', 'uuid.rfc4122("a")', 'net.lookup_ip_addr("a")'),
        *("time.now_ns()", "print(input)", 'trace("a")', 'json.match_schema({}, {"$ref": "https://a.example"})'),
        *('json.verify_schema({"$ref": "https://a.example"})', 'io.jwt.decode_verify("a", {})'),
        'io.jwt.encode_sign({}, {}, {"kty": "oct", "k": "a"})',
    ],
)
async def test_bans_hold_whatever_engine_decides(kind: Kind, tmp_path: Path, call: str) -> None:
    """In a branch that is never taken too, with the place; also for the checks that stand in for a remote OPA."""
    from kblockd.policy.embedded import engine as embedded

    texts = deciding(f"result := {ALLOW} if {{\n\tfalse\n\t{call}\n}}")
    with pytest.raises(BundleRefused) as by_opa:
        await kind.engine().prepare(write(tmp_path / "p", texts))
    with pytest.raises(BundleRefused) as by_embedded:
        await embedded.check(Bundle.of(texts), PATIENT, server=True)
    name = call.partition("(")[0]
    for raised in (by_opa, by_embedded):
        fault = raised.value.faults[0]
        assert (fault.file, fault.line) == ("decision.rego", 9)
        assert name in fault.message
        assert fault.next_step not in ("", "correct the rule")


async def test_what_only_opa_has_may_decide(kind: Kind, tmp_path: Path) -> None:
    """The reason to run it: builtins that the embedded engine refuses."""
    rule = f'result := {ALLOW} if io.jwt.verify_hs256(input.args.token, "secret")'
    good = "eyJhbGciOiJIUzI1NiJ9.e30.XmNK3GpH3Ys_7wsYBfq4C3M6goz71I7dTgUkuIa5lyQ"
    async with kind.running(tmp_path / "p", deciding(rule)) as engine:
        for token, expected in [(good, "allow"), (good.replace(".e30.", ".e31."), "deny")]:
            assert (await engine.evaluate(DECISION, document(token=token))).result["effect"] == expected


@pytest.mark.parametrize(
    ("program", "says"),
    [("/bin/false", "OPA"), ("/bin/sleep", "OPA"), ("/nonexistent/opa", "OPA"), ("/bin/cat", "OPA")],
)
async def test_what_is_not_opa_is_refused_in_time(tmp_path: Path, program: str, says: str) -> None:
    with kind_of("opa") as kind:
        engine = SupervisedEngine(Path(program), kind.run_dir, OpaLimits(load_seconds=20.0), RealClock(), CountingIds())
        with pytest.raises(BundleRefused, match=says):
            await engine.prepare(write(tmp_path / "p", files()))
        with pytest.raises(BundleRefused, match=says):
            await engine.activate(Bundle.of(files()))
        assert not engine.status().ready
        await engine.close()


async def test_bundle_that_opa_refuses_says_what_opa_said(kind: Kind) -> None:
    limits = OpaLimits(load_seconds=60.0)
    server = OpaServer(Bundle.of({"a.rego": "package a\nx := {"}), opa_binary(), kind.run_dir, limits, RealClock())
    with pytest.raises(LoadFailed, match="rego_parse_error"):
        await server.start()
    await server.close()
    assert not kind.children()


async def test_child_has_neither_environment_nor_descriptors(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBLOCKD_TEST_SECRET", "hunter2")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with (tmp_path / "key").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
            (pid,) = kind.children()
            environment = dict(
                row.split(b"=", 1) for row in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if row
            )
            assert set(environment) <= {b"GOMEMLIMIT", b"HOME", b"LC_CTYPE"}
            opened = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
            assert str(tmp_path / "key") not in opened
            files_ = {name for name in opened if name.startswith("/") and not name.startswith("/sys/fs/cgroup/")}
            assert files_ <= {"/dev/null"}
            assert os.getsid(pid) == pid
            (folder,) = kind.run_dir.iterdir()
            assert folder.stat().st_mode & 0o777 == 0o700
            (socket,) = folder.glob("*.sock")
            assert socket.stat().st_mode & 0o077 == 0
            assert await effect(engine) == "allow"


async def test_nothing_listens_on_the_network(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND)):
        (pid,) = kind.children()
        inodes = {
            target.removeprefix("socket:[").removesuffix("]")
            for number in os.listdir(f"/proc/{pid}/fd")
            if (target := os.readlink(f"/proc/{pid}/fd/{number}")).startswith("socket:")
        }
        for table in ("tcp", "tcp6", "udp", "udp6"):
            rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
            assert not inodes & {row[9] for row in rows}


async def test_what_a_killed_daemon_left_is_swept(kind: Kind, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = kind.run_dir / f"opa-{ended.pid}-x"
    checked = kind.run_dir / f"check-{ended.pid}-x"
    other = kind.run_dir / f"opa-{os.getppid()}-x"
    for folder in (left, checked, other):
        folder.mkdir()
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND)):
        assert not left.exists()
        assert not checked.exists()
        assert other.exists()
    other.rmdir()


async def test_activation_that_is_cancelled_at_any_moment_leaves_nothing(kind: Kind) -> None:
    """Neither a process nor a folder, wherever the start was: ``kind_of`` looks for what is left."""
    engine = kind.engine()
    bundle = Bundle.of(files())
    for turn in range(40):
        starting = asyncio.create_task(engine.activate(bundle))
        await asyncio.sleep(turn * 0.003)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
            break  # quicker than the cancellation
        assert not kind.children()
        assert not list(kind.run_dir.iterdir())
    assert turn > 2
    await engine.close()
    assert not kind.children()


async def test_folder_that_others_can_write_to_is_not_used(kind: Kind, tmp_path: Path) -> None:
    """Whoever can could put a socket of their own in its place."""
    kind.run_dir.chmod(0o777)
    engine = kind.engine()
    with pytest.raises(BundleRefused, match="can be written by others"):
        await engine.prepare(write(tmp_path / "p", files()))
    with pytest.raises(BundleRefused, match="can be written by others"):
        await engine.activate(Bundle.of(files()))
    await engine.close()


@pytest.mark.parametrize("name", ["kblock", "system"])
async def test_data_that_could_stand_in_for_a_rule_or_the_revision_is_refused(
    kind: Kind, tmp_path: Path, name: str
) -> None:
    from kblockd.policy.embedded import engine as embedded

    texts = files(data__json=f'{{"{name}": {{"bundles": {{}}}}}}')
    with pytest.raises(BundleRefused, match=f"data.{name} is"):
        await kind.engine().prepare(write(tmp_path / "p", texts))
    with pytest.raises(BundleRefused, match=f"data.{name} is"):
        await embedded.check(Bundle.of(texts), PATIENT, server=True)


PARENT = """
import asyncio, pathlib, sys
from tests.contract.policy.support import ALLOW_REFUND, Kind, deciding, document
from kblockd.policy.deciding.entrypoints import DECISION
async def main():
    kind = Kind("opa", b"--server", 1, pathlib.Path(sys.argv[2]))
    async with kind.running(pathlib.Path(sys.argv[1]), deciding(ALLOW_REFUND)) as engine:
        await engine.evaluate(DECISION, document())
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_opa_dies_with_its_parent(tmp_path: Path) -> None:
    opa_binary()
    root = Path(__file__).parents[3]
    with kind_of("opa") as kind:
        run_dir = kind.run_dir / "r"
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(tmp_path / "p"), str(run_dir)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(root)},
        )
        try:
            assert parent.stdout is not None
            assert await asyncio.to_thread(parent.stdout.readline) == b"ready\n"
            orphans = children(parent.pid, b"--server")
            assert len(orphans) == 1
            parent.kill()
            parent.wait()
            await until(lambda: not any(alive(pid) for pid in orphans))
        finally:
            parent.kill()
            parent.wait()
            parent.stdout.close()
        async with Kind("opa", b"--server", 1, run_dir).running(tmp_path / "q", deciding(ALLOW_REFUND)):
            assert len(list(run_dir.iterdir())) == 1  # the next daemon sweeps what was left
        run_dir.rmdir()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0] != "Z"
    except OSError:
        return False


def test_under_uvloop(tmp_path: Path) -> None:
    """The loop that the daemon runs on starts, kills and reaps OPA as asyncio's own does."""

    async def play(kind: Kind) -> None:
        limits = EmbeddedLimits(evaluate_seconds=1.0, load_seconds=60.0)
        async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND, RUNAWAY), limits) as engine:
            assert await reason(engine, "slow") is Reason.POLICY_TIMEOUT
            assert await effect(engine) == "allow"
            os.kill(next(iter(kind.children())), signal.SIGKILL)
            await heals(engine)
        assert not kind.children()

    with kind_of("opa") as kind:
        uvloop.run(play(kind))


async def test_opa_comes_back_although_no_thread_could_be_had_to_reap_it(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps OPA alive must not end by what may have killed it, too."""
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND), PATIENT) as engine:
        in_thread, refused = asyncio.to_thread, []

        async def to_thread(work: Any, *arguments: Any, **named: Any) -> Any:
            if not refused and work.__name__ == "wait":
                refused.append(work)
                raise RuntimeError("can't start new thread")
            return await in_thread(work, *arguments, **named)

        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        (victim,) = kind.children()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: bool(refused))
        await heals(engine)
