"""The next step for what the engines say, as they say it."""

from __future__ import annotations

import pytest

from kblockd.policy.rego import advice


@pytest.mark.parametrize(
    ("embedded", "opa", "step"),
    [
        ("use of undefined variable `askd` is unsafe", "var askd is unsafe", "give it a value first"),
        (
            "recursion detected when evaluating rule: --> a.rego:1:1",
            "rule data.a.b is recursive: data.a.b -> data.a.b",
            "let no rule depend on itself",
        ),
        (
            "`if` keyword is required before rule body",
            "`if` keyword is required before rule body",
            "`deny contains msg if",
        ),
        ("expecting `package` Missing package declaration.", "package expected", "begin the file with its package"),
        ("expecting `}` while parsing query", "unexpected } token", advice.SYNTAX),
    ],
)
def test_both_engines_get_the_same_step(embedded: str, opa: str, step: str) -> None:
    assert advice.next_step(embedded, advice.SYNTAX) == advice.next_step(opa, advice.SYNTAX)
    assert step in advice.next_step(opa, advice.SYNTAX)


def test_an_import_behind_rules_is_named() -> None:
    """OPA takes it, so that nothing is misspelt."""
    assert "move the import above the first rule" in advice.next_step("unexpected keyword `import`", advice.SYNTAX)


def test_a_function_that_is_not_there_is_not_sought_in_another_engine() -> None:
    """Another engine would not have what no file of the bundle defines."""
    known = ["data.shared.money.minor_units", "count", "startswith"]
    message, step = advice.undefined_function("data.shared.money.minor_unit", known)
    assert (message.endswith("the function data.shared.money.minor_unit"), "engine" in step) == (True, False)
    assert "did you mean data.shared.money.minor_units?" in step
    assert advice.next_step("undefined function data.shared.money.minor_unit") in step.replace(
        " (did you mean data.shared.money.minor_units?)", ""
    )
    message, step = advice.undefined_function("io.jwt.verify_hs256", known)
    assert (message.startswith("io.jwt.verify_hs256 is not a function"), "policy.engine opa" in step) == (True, True)
    message, step = advice.undefined_function("nosuch.thing", known)
    assert ("OPA, of the embedded engine or" in message, "policy.engine" in step) == (True, False)
    assert "did you mean startswith?" in advice.undefined_function("startwith", known)[1]
