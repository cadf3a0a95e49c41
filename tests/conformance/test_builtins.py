"""Every builtin that the embedded engine may call, beside OPA's: the same answer, or a loud error.

Silent is what must not be: two different values, or an answer (or undefined, which is true behind a ``not``) where OPA
has an error. ``known_builtin_differences.json`` names what is left, each with its reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.builtins import texts
from kblockd.policy.deciding.entrypoints import DECISION
from tests.conformance.builtin_calls import Call, Said, batches, by_engine, by_opa
from tests.contract.policy.support import ALLOW, deciding, document, kind_of, opa_binary, write
from tests.unit.policy import make_letter_case

KNOWN: dict[str, str] = json.loads(Path(__file__).with_name("known_builtin_differences.json").read_text())


def silent(opa: Said, engine: Said) -> bool:
    """Whether nobody would notice that the engines differ."""
    if engine.kind == "error":
        return False
    return opa.kind != engine.kind or normal(opa.value) != normal(engine.value)


def normal(value: Any) -> str:
    """3.0 is 3: how a number is printed is documented to differ. 1 and true are two things."""

    def whole(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, list):
            return list(map(whole, value))
        return {key: whole(item) for key, item in value.items()} if isinstance(value, dict) else value

    return json.dumps(whole(value), sort_keys=True)


@pytest.mark.timeout(300)
def test_apv_09_every_builtin_answers_as_opa_does_or_fails_loudly(tmp_path: Path) -> None:
    program = opa_binary()
    found: dict[str, list[str]] = defaultdict(list)
    compared, alike = 0, 0
    for batch in batches():
        for call, opa, engine in zip(batch, by_opa(program, batch, tmp_path), by_engine(batch), strict=True):
            compared += 1
            alike += opa.kind == engine.kind
            if silent(opa, engine):
                found[call.name].append(f"{call}: OPA {opa}, here {engine}")
    assert {name: rows for name, rows in found.items() if name not in KNOWN} == {}
    assert set(KNOWN) <= set(found), "an entry that no longer differs"
    assert alike > 0.9 * compared > 10_000


def test_a_difference_would_be_seen() -> None:
    assert silent(Said("error"), Said("undefined"))
    assert silent(Said("error"), Said("value", False))
    assert silent(Said("value", 1), Said("value", True))
    assert silent(Said("value", "istanbul"), Said("value", "i̇stanbul"))
    assert not silent(Said("value", 1000.0), Said("value", 1000))
    assert not silent(Said("value", 1), Said("error"))
    assert str(Call("lower", (0,))) == "lower(null)"


@pytest.mark.parametrize(("builtin", "replacement"), [("lower", texts.lower), ("upper", texts.upper)])
def test_apv_09_every_code_point_changes_case_as_in_opa(builtin: str, replacement: Callable[[str], str]) -> None:
    """The generated table is this OPA's, and one code point stays one whatever stands beside it."""
    expected = make_letter_case.mapping(str(opa_binary()), builtin)
    assert {ord(each): ord(replacement(each)) for each in make_letter_case.ALL if replacement(each) != each} == expected
    assert replacement("".join(make_letter_case.ALL)) == "".join(map(replacement, make_letter_case.ALL))


RULES = [
    'result := {ALLOW} if lower(input.args.city) != "istanbul"',
    'result := {ALLOW} if upper(input.args.street) != "STRAßE"',
    r"""result := {ALLOW} if json.marshal(input.args.text) != "\"\\u003c\\u0026\\u003e\"" """,
    'result := {ALLOW} if urlquery.decode(input.args.text) != "<&>"',
]


@pytest.mark.parametrize("rule", RULES)
async def test_apv_09_a_refusal_behind_the_builtin_holds_in_both_engines(rule: str, tmp_path: Path) -> None:
    """Each of these was allowed by the embedded engine only."""
    folder = write(tmp_path / "policy", deciding(rule.replace("{ALLOW}", ALLOW)))
    given = document("refund", city="İSTANBUL", street="straße", text="<&>")
    with kind_of("embedded") as one, kind_of("opa") as two:
        for engine in (one.engine(), two.engine()):
            try:
                await engine.activate(await engine.prepare(folder))
                decided = await engine.evaluate(DECISION, given)
                assert decided.result["effect"] == "deny", engine.status().engine
            finally:
                await engine.close()
