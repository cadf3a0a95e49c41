"""Preparing, refusing and swapping: the old revision stays in force until a checked and recorded one replaces it."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from kblockd.domain.errors import Reason
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    DENY,
    PATIENT,
    RUNAWAY,
    Kind,
    deciding,
    document,
    files,
    package,
    until,
    write,
)

WITHOUT_PACKAGE = {name: text for name, text in files().items() if name != "recovery.rego"}
BARE = f"package kblock.decision\n\nimport rego.v1\n\nresult := {ALLOW}"
BROKEN = {
    "syntax": (files(decision=f"{BARE} if {{\n"), "decision.rego", 6),
    "type": (files(decision=BARE.replace('"count": 0', '"count": "none"')), "decision.rego", 5),
    "undefined": (files(decision=f'{BARE} if input.action.type == "x"\n'), "decision.rego", 5),
    "banned builtin": (
        deciding(f"result := {ALLOW} if {{\n\tfalse\n\thttp.send(input.t)\n}}"),
        "decision.rego",
        9,
    ),
    "failing test": (
        files(a_test__rego="package kblock.a_test\n\nimport rego.v1\n\ntest_it if 1 == 2\n"),
        "a_test.rego",
        5,
    ),
    "missing package": (WITHOUT_PACKAGE, ".", 0),
    "no rule result": (files(recovery="package kblock.recovery\n\nimport rego.v1\n\nx := 1\n"), ".", 0),
    "unsafe variable": (deciding(f"result := {ALLOW} if y > 1"), "decision.rego", 7),
    "empty folder": ({}, "", 0),
    "broken data": (files(**{"data__json": '{"a": 1, "a": 2}'}), "data.json", 0),
    "error for the sample": (files(decision=f"{BARE} if 1 / 0 == 1\n"), "decision.rego", 5),
}


@pytest.mark.parametrize(("texts", "file", "line"), BROKEN.values(), ids=BROKEN.keys())
async def test_pol_05_broken_reload_keeps_the_old_revision_and_says_why(
    kind: Kind, tmp_path: Path, texts: dict[str, str], file: str, line: int
) -> None:
    async with kind.running(tmp_path / "p", deciding(ALLOW_REFUND)) as engine:
        old = engine.status().revision
        with pytest.raises(BundleRefused) as raised:
            await engine.prepare(write(tmp_path / "p", texts))
        fault = raised.value.faults[0]
        assert (fault.file or str(tmp_path / "p")).endswith(file)
        assert fault.line == line
        assert fault.message
        assert fault.next_step
        status = engine.status()
        assert (status.revision, status.ready) == (old, True)
        assert fault.message in status.last_error
        decision = await engine.evaluate(DECISION, document())
        assert (decision.result["effect"], decision.revision) == ("allow", old)


async def test_refusal_is_forgotten_when_the_folder_is_whole_again(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", files()) as engine:
        with pytest.raises(BundleRefused):
            await engine.prepare(write(tmp_path / "p", WITHOUT_PACKAGE))
        assert "recovery" in engine.status().last_error
        await engine.prepare(write(tmp_path / "p", files()))
        assert engine.status().last_error == ""


async def test_all_broken_files_are_named_at_once(kind: Kind, tmp_path: Path) -> None:
    engine = kind.engine()
    broken = files(decision="package kblock.decision\nx := {", recovery="package kblock.recovery\ny := [")
    with pytest.raises(BundleRefused) as raised:
        await engine.prepare(write(tmp_path / "p", broken))
    assert [fault.file for fault in raised.value.faults] == ["decision.rego", "recovery.rego"]
    await engine.close()


async def test_tests_are_counted_and_do_not_decide(kind: Kind, tmp_path: Path) -> None:
    """A module of tests is not part of the engine that answers, but of the revision."""
    sneaky = f'package kblock.decision\n\nimport rego.v1\n\nresult := {ALLOW} if input.action.type == "sneaky"\n'
    tests = '\ntest_one if true\n\ntest_two if result.effect == "deny" with input as {}\n'
    engine = kind.engine()
    plain = await engine.prepare(write(tmp_path / "p", files()))
    bundle = await engine.prepare(write(tmp_path / "p", files(b_test__rego=sneaky + tests)))
    assert (plain.tests, bundle.tests) == (0, 2)
    assert plain.revision != bundle.revision
    await engine.activate(bundle)
    assert (await engine.evaluate(DECISION, document("sneaky"))).result["effect"] == "deny"
    await engine.close()


async def test_runaway_test_is_refused_in_time(kind: Kind, tmp_path: Path) -> None:
    runaway = RUNAWAY.replace('input.action.type == "slow"', "true").replace(f"result := {ALLOW}", "test_slow")
    text = f"package kblock.a_test\n\nimport rego.v1\n\n{runaway}\n"
    engine = kind.engine(EmbeddedLimits(load_seconds=3.0))
    async with asyncio.timeout(30):
        with pytest.raises(BundleRefused, match="longer than 3 s"):
            await engine.prepare(write(tmp_path / "p", files(a_test__rego=text)))
    assert not kind.children()
    await engine.close()


async def test_activation_is_recorded_before_it_decides(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", files()) as engine:
        old = engine.status().revision
        bundle = await engine.prepare(write(tmp_path / "p", deciding(ALLOW_REFUND)))
        seen = []

        async def record(activated: Bundle) -> None:
            decision = await engine.evaluate(DECISION, document())
            seen.append((activated.revision, decision.revision, engine.status().revision))

        await engine.activate(bundle, before_swap=record)
        assert seen == [(bundle.revision, old, old)]
        assert (await engine.evaluate(DECISION, document())).revision == bundle.revision == engine.status().revision


async def test_activation_that_cannot_be_recorded_does_not_happen(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", files()) as engine:
        old = engine.status().revision
        await until(lambda: len(kind.children()) == kind.processes)
        before = kind.children()

        async def fail(_: Bundle) -> None:
            raise OSError("the store is gone")

        bundle = await engine.prepare(write(tmp_path / "p", deciding(ALLOW_REFUND)))
        with pytest.raises(OSError, match="the store is gone"):
            await engine.activate(bundle, before_swap=fail)
        assert engine.status().revision == old
        assert bundle.revision in engine.status().last_error
        assert (await engine.evaluate(DECISION, document())).result["effect"] == "deny"
        assert kind.children() == before


async def test_bundle_that_does_not_load_is_not_activated(kind: Kind, tmp_path: Path) -> None:
    """Past the check by force: what does not load in time, or at all, leaves the old one in force."""
    engine = kind.engine(EmbeddedLimits(evaluate_seconds=20.0, load_seconds=5.0))
    await engine.activate(await engine.prepare(write(tmp_path / "p", files())))
    nested = (
        "package kblock.decision\n\nresult := " + "(" * 60 + "1" + ")" * (60 if kind.name == "embedded" else 59) + "\n"
    )
    with pytest.raises(BundleRefused):
        await engine.activate(Bundle.of(files(decision=nested)))
    assert (await engine.evaluate(DECISION, document())).result["effect"] == "deny"
    await engine.close()


async def test_old_children_end_after_the_swap(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", files()) as engine:
        await until(lambda: len(kind.children()) == kind.processes)
        old = kind.children()
        await engine.activate(await engine.prepare(write(tmp_path / "p", deciding(ALLOW_REFUND))))
        await until(lambda: len(kind.children()) == kind.processes and not kind.children() & old)


async def test_close_right_after_a_swap_leaves_no_child(kind: Kind, tmp_path: Path) -> None:
    """The old revision's children have not begun to end when the engine is closed."""
    async with kind.running(tmp_path / "p", files()) as engine:
        await engine.activate(await engine.prepare(write(tmp_path / "p", deciding(ALLOW_REFUND))))
    assert not kind.children()


async def test_question_in_flight_is_answered_by_the_revision_that_it_asked(kind: Kind, tmp_path: Path) -> None:
    async with kind.running(tmp_path / "p", files()) as engine:
        old = engine.status().revision
        bundle = await engine.prepare(write(tmp_path / "p", deciding(ALLOW_REFUND)))
        asked: list[asyncio.Task] = []

        async def ask(_: Bundle) -> None:
            asked.extend(asyncio.create_task(engine.evaluate(DECISION, document())) for _ in range(20))
            await asyncio.sleep(0)

        await engine.activate(bundle, before_swap=ask)
        for decision in await asyncio.gather(*asked):
            assert (decision.revision, decision.result["effect"]) == (old, "deny")


async def test_pol_06_swaps_under_load_never_allow_what_is_denied(kind: Kind, tmp_path: Path) -> None:
    """Two revisions that both deny one input and allow another; each decision names the revision that made it."""
    engine = kind.engine(PATIENT)
    rule = f'result := {ALLOW} if input.action.type == "refund"'
    texts = [deciding(rule), deciding(rule, f'result := {DENY} if input.action.type == "other"')]
    bundles = [await engine.prepare(write(tmp_path / str(i), each)) for i, each in enumerate(texts)]
    await engine.activate(bundles[0])
    done = asyncio.Event()

    async def load(kind: str, effect: str) -> set[str]:
        revisions = set()
        while not done.is_set():
            decision = await engine.evaluate(DECISION, document(kind))
            assert decision.result["effect"] == effect
            revisions.add(decision.revision)
            await asyncio.sleep(0.002)
        return revisions

    tasks = [asyncio.create_task(load(*pair)) for pair in [("refund", "allow"), ("other", "deny")] * 2]
    for bundle in itertools.islice(itertools.cycle(reversed(bundles)), 8):
        await engine.activate(bundle)
        await asyncio.sleep(0.02)
    done.set()
    for revisions in await asyncio.gather(*tasks):
        assert revisions == {bundle.revision for bundle in bundles}
    await engine.close()


async def test_activate_after_close_is_refused_and_leaves_no_child(kind: Kind, tmp_path: Path) -> None:
    engine = kind.engine()
    bundle = await engine.prepare(write(tmp_path / "p", files()))
    await engine.close()
    with pytest.raises(PolicyFailure) as raised:
        await engine.activate(bundle)
    assert raised.value.reason is Reason.POLICY_DOWN
    assert not kind.children()


def test_revision_covers_every_path_and_byte() -> None:
    one = Bundle.of(files())
    assert one.revision == Bundle.of(dict(reversed(files().items()))).revision
    assert one.revision != Bundle.of(files(decision=package("decision") + "\n")).revision
    renamed = files()
    renamed["decided.rego"] = renamed.pop("decision.rego")
    assert one.revision != Bundle.of(renamed).revision
    assert one.revision != Bundle.of(files(data__json="{}")).revision
