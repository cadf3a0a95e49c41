"""What the benchmark computes from what it reads; what it measures is asserted nowhere."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from kblockd.store.protocol import Append, Payload
from tests.bench import copies, load, mcp, processes, profile, questions, run, upstream
from tests.bench.effects import Effects
from tests.bench.figures import Figures
from tests.bench.processes import Cpu
from tests.bench.profile import Function, Profile

# The name of a process may hold what separates fields.
STAT = "4711 (a) b (c) S 42 1 1 0 -1 4194304 9 9 9 9 150 50 7 7 20 0 3 0 1 1 1 1"
LOOP: Function = ("/usr/lib/python3.11/asyncio/runners.py", 86, "Runner.run")
DECIDE: Function = ("/x/kblockd/execution/decide.py", 10, "decide")
ADMIT: Function = ("/x/kblockd/execution/admit.py", 10, "admit")
CANONICAL: Function = ("/x/kblockd/domain/canonical.py", 85, "canonical")
SERVICE: Function = ("/x/kblockd/rpc/interceptors.py", 94, "unary")
ANYIO: Function = ("/v/site-packages/anyio/_core.py", 1, "run")


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_a_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    values = [float(number) for number in range(1, 101)]
    random.Random(1).shuffle(values)
    assert load.percentile(values, share) == expected
    assert load.percentile([], share) == 0.0


def test_processes_are_read_whatever_they_are_called() -> None:
    assert processes.seconds_of(STAT) == pytest.approx(200 / processes._TICK)
    assert processes.parent_of(STAT) == 42


def test_stolen_time_is_work_and_waiting_for_a_disk_is_not() -> None:
    found = processes.machine_of("cpu  100 10 20 300 40 5 6 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert (found.busy, found.possible) == pytest.approx((148 / processes._TICK, 488 / processes._TICK))


def test_figures_are_of_one_execution() -> None:
    figures = Figures(1, cpu={"daemon": Cpu(2.0, 1.0)}, syncs=30)
    figures.seen.milliseconds = [1.0] * 20
    assert figures.cpu_each("daemon") == Cpu(100.0, 50.0)
    assert figures.cpu_each("policy") == Cpu()
    assert figures.syncs_each == 1.5
    assert Figures(1).syncs_each is None


async def test_callers_count_successes_and_faults_apart() -> None:
    async def once(name: str) -> str:
        return "odd" if int(name.rpartition("-")[2]) % 2 else ""

    seen = await load.callers(3, 0.05, "n", once)
    assert set(seen.faults) == {"odd"}
    assert 0 <= seen.faults["odd"] - seen.done <= 3
    assert seen.rate == pytest.approx(seen.done / seen.seconds)


def test_a_profile_counts_for_the_outermost_stage_and_the_innermost_package() -> None:
    samples = [
        (3.0, [CANONICAL, DECIDE, ADMIT, SERVICE, LOOP]),
        (2.0, [ANYIO, SERVICE, LOOP]),
        (1.0, [LOOP, SERVICE]),
    ]
    found = Profile(samples)
    assert found.seconds == 6.0
    assert found.stages() == [("01 admit", 3.0)]
    assert found.packages() == [("kblockd.domain", 3.0), ("anyio", 2.0), ("asyncio", 1.0)]
    assert found.elsewhere() == [("kblockd.rpc interceptors.py:94 unary", 2.0), ("the loop itself", 1.0)]
    assert found.functions(1) == [("kblockd.domain canonical.py:85 canonical", 3.0)]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/v/site-packages/typing_extensions.py", "typing_extensions"),
        ("/x/plugins/mcp/kblockd_mcp/wire.py", "kblockd_mcp"),
        ("/x/kblockd/daemon.py", "kblockd.daemon"),
        ("<string>", "other Python"),
    ],
)
def test_a_file_belongs_to_a_package(file: str, expected: str) -> None:
    assert profile.package(file) == expected


def test_a_copy_has_identifiers_of_its_own_and_keeps_what_is_shared() -> None:
    own, shared, id_ = "ab" * 32, "cd" * 32, "0123456789abcdef" * 2
    leaf = json.dumps({"execution": f"exe_{id_}", "digest": own, "contract": shared}).encode()
    payloads = [Payload(("payload", f"exe_{id_}", own), f"of exe_{id_}".encode())]
    template = copies.Template([Append(leaf, b"aux")], payloads, [own.encode(), id_.encode()])
    (record,), (payload,) = template.copy(5, random.Random(1))
    told = json.loads(record.leaf)
    fresh = told["execution"].removeprefix("exe_")
    assert record.aux == b"aux"
    assert told["contract"] == shared
    assert (len(fresh), int(fresh[:12], 16)) == (32, int(id_[:12], 16) - 5)
    assert payload == Payload(("payload", told["execution"], told["digest"]), f"of exe_{fresh}".encode())
    assert own not in record.leaf.decode()


def test_what_several_executions_share_is_nobodys_own() -> None:
    assert copies.only_in_one([{b"b", b"s", b"a"}, {b"c", b"s"}]) == [[b"a", b"b"], [b"c"]]


def test_the_upstream_counts_an_effect_of_either_protocol() -> None:
    effects = Effects()
    params = {"name": "effect", "arguments": {"item": "a"}}
    told = mcp.answer(effects, {"id": 1, "method": "tools/call", "params": params})
    assert told["result"]["structuredContent"] == {"id": "e-a", "done": 1}
    assert effects.state("a") == {"done": 1}
    effects.act("a")
    assert effects.count() == {"count": 2, "most": 2}
    assert mcp.answer(effects, {"id": 2, "method": "ping"})["error"]["code"] == -32601
    assert upstream.content_length(b"POST / HTTP/1.1\r\nContent-Length: 12") == 12
    assert upstream.content_length(b"GET / HTTP/1.1\r\nhost: a") == 0


def test_the_data_of_a_policy_have_the_size_that_they_are_called_by() -> None:
    for size in questions.SIZES.values():
        document, entries = questions.data(size)
        assert len(json.loads(document)["limits"]) == entries
        assert 0.9 * size < len(document) < 1.2 * size


def test_options_name_parts_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = run.options(["--only", "plain,store", "--callers", "2,4", "--keep", "there"])
    assert (chosen.only, chosen.callers, chosen.keep) == (["plain", "store"], (2, 4), Path("there"))
    with pytest.raises(SystemExit):
        run.options(["--only", "plian"])
    assert "plian" in capsys.readouterr().err
