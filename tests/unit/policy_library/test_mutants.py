"""No rule of the library is there without a test that would miss it.

Each comparison, constant, negation and condition of each module is changed alone, in a copy; at least one Rego test
must fail then. The tests run as the embedded engine runs them; that OPA agrees with them is shown elsewhere.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.bundles.bundle import read
from kblockd.policy.embedded import acceptance
from kblockd.policy.embedded.modules import Modules, load
from tests.unit.policy_library.mutants import dies, mutants

FOLDER = Path(__file__).parents[3] / "config" / "policy"
MODULES = read(FOLDER).modules
RULES = sorted(name for name in MODULES if not name.endswith("_test.rego"))

# Changes that mean the same: any other word than expected and tolerated; a default that is only there in case; a read
# that is no object has no fields either.
SAME = {("", "mutant")}
SAME_IN = {
    "preconditions.rego": {("NO_RULE", "mutant")},
    "verification.rego": {("is_object(input.read)", "true")},
}


@functools.cache
def every_test() -> tuple[str, ...]:
    """All of them, by full path."""
    engine = load(Modules(MODULES, {}), DecisionTime())
    return tuple(path for path in acceptance._heads(json.loads(engine.get_ast_as_json())) if ".test_" in path)


def own_tests_first(name: str) -> list[str]:
    """Those of the module itself first: most mutants end there."""
    own = name.removesuffix(".rego").replace("/", ".") + "_test."
    return sorted(every_test(), key=lambda test: own not in test)


def without(name: str) -> Any:
    """An engine with every module but this one."""
    return load(Modules({path: text for path, text in MODULES.items() if path != name}, {}), DecisionTime())


def alive(name: str, step: int) -> list[str]:
    """Mutants of a module that no test notices, every ``step``-th tried."""
    engine, tests = without(name), own_tests_first(name)
    found = list(mutants(name, MODULES[name]))[::step]
    assert found
    known = SAME | SAME_IN.get(name, set())
    survivors = (mutant for mutant in found if (mutant.was, mutant.now) not in known)
    return [str(mutant) for mutant in survivors if not dies(engine, tests, name, mutant)]


@pytest.mark.parametrize("name", RULES)
def test_a_mutant_of_a_rule_fails_a_test(name: str) -> None:
    """R072, R110: a seventh of them at each run."""
    assert alive(name, 7) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", RULES)
def test_every_mutant_of_a_rule_fails_a_test(name: str) -> None:
    """R072, R110: what decides is tested to the last constant."""
    assert alive(name, 1) == []


def test_a_module_without_its_test_is_found() -> None:
    """The check itself: without the tests of an action its mutants live."""
    name = "actions/create_ticket.rego"
    others = [test for test in every_test() if "create_ticket_test" not in test]
    mutant = next(m for m in mutants(name, MODULES[name]) if m.was == "urgent")
    assert dies(without(name), own_tests_first(name), name, mutant)
    assert not dies(without(name), others, name, mutant)
