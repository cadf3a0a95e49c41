"""The shipped policies on both engines: the same answer, or a denial for the same reason, for every input.

The inputs are the fixtures of the shipped policies' tests, and each of them with one thing taken out, nulled, or made
another type: what callers and upstreams really send.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kblockd.policy.bundles.bundle import read
from kblockd.policy.deciding import PolicyEngine, PolicyFailure
from kblockd.policy.deciding.entrypoints import ENTRYPOINTS
from kblockd.policy.deciding.samples import SAMPLES
from tests.contract.policy.support import document, kind_of, opa_binary
from tests.unit.policy import make_vectors
from tests.unit.policy.test_shipped import FOLDER, refund

OTHERS: list[Any] = [None, False, 0, -1, "", "x", "0.00", "9007199254740993", "2026-11-29T10:00:00Z", [], ["*"], {}]


def documents() -> Iterator[dict[str, Any]]:
    """Bases, then every mutation of the fullest one."""
    outcome = {
        "class": "unknown_outcome",
        "code": "",
        "attempts": 1,
        "maximum_attempts": 2,
        "marker": True,
        "irreversible": False,
    }
    finding = {"finding": "absent", "verdict": ""}
    done = {"refunds": [{"refund_id": "rf_1", "amount": "25.00", "currency": "EUR", "effect_key": "k"}]}
    full = refund(read=done, outcome=outcome, finding=finding)
    yield from ({}, document(), document("other"), refund(), refund(approval=None, snapshot=None), full)
    yield from map(json.loads, SAMPLES)
    for path in paths(full):
        yield changed(full, path)
        if path[0] == "approval":  # the daemon writes it, so its types are fixed; iterating a scalar is an error here
            continue
        for number, other in enumerate(OTHERS):
            if len(path) < 3 or number % 3 == len(str(path)) % 3:  # all of them near the top, a third below
                yield changed(full, path, other)


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every member, outermost first."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in rows:
        yield (*at, key)
        yield from paths(member, (*at, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], *other: Any) -> dict[str, Any]:
    """A copy with the member taken out, or replaced."""
    found = copy.deepcopy(document)
    node: Any = found
    for part in path[:-1]:
        node = node[part]
    if other:
        node[path[-1]] = other[0]
    else:
        del node[path[-1]]
    return found


async def said(engine: PolicyEngine, entrypoint: str, given: dict[str, Any]) -> Any:
    """The answer, or the reason of the denial."""
    try:
        return (await engine.evaluate(entrypoint, given)).result
    except PolicyFailure as failure:
        return failure.reason


async def test_shipped_policies_answer_alike_on_both_engines() -> None:
    """Piece 2 of the OPA engine: any difference fails."""
    bundle = read(FOLDER)
    with kind_of("embedded") as one, kind_of("opa") as two:
        engines = [one.engine(), two.engine()]
        try:
            for engine in engines:
                await engine.activate(bundle)
            different, answered = [], set()
            for given in documents():
                for entrypoint in ENTRYPOINTS:
                    left, right = [await said(engine, entrypoint, given) for engine in engines]
                    answered.add(json.dumps([entrypoint, left], sort_keys=True, default=str))
                    if left != right:
                        different.append((entrypoint, left, right, given))
        finally:
            for engine in engines:
                await engine.close()
    assert different == []
    assert len(answered) > 30  # the inputs reach many different answers


def test_vectors_of_the_replacements_are_what_opa_answers(tmp_path: Path) -> None:
    """The checked-in vectors are OPA's, not ours: made again they are the same."""
    program = "import sys; from pathlib import Path; from tests.unit.policy import make_vectors as m; "
    program += "m.OUT = Path(sys.argv[2]); m.main(sys.argv[1])"
    root = Path(__file__).parents[2]
    fresh = tmp_path / "vectors.json"
    subprocess.run([sys.executable, "-c", program, str(opa_binary()), str(fresh)], check=True, cwd=root)
    assert fresh.read_text() == make_vectors.OUT.read_text()
