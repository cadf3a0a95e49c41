"""Child side: the checks of a bundle before it may be activated."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.deciding import entrypoints
from kblockd.policy.deciding.samples import SAMPLES, misfit, missing
from kblockd.policy.embedded.modules import Modules, evaluate, fault_of, load
from kblockd.policy.faults import BundleFault
from kblockd.policy.rego import advice
from kblockd.policy.rego.linter import lint, rule_names, server_faults
from kblockd.policy.rego.syntax import Module, Node


def query_of(entrypoint: str) -> str:
    """``kblock/decision/result`` as a query."""
    return "data." + entrypoint.replace("/", ".")


def check(modules: Modules, time: DecisionTime, *, server: bool = False) -> tuple[list[BundleFault], int]:
    """All faults of the first step that finds any, and the number of tests that ran.

    ``server``: what only an OPA server would answer differently is refused as well.
    """
    for step in (partial(unloadable, server=server), _probe):
        if faults := step(modules, time):
            return faults, 0
    return _tests(modules, time)


def unloadable(modules: Modules, time: DecisionTime, *, server: bool = False) -> list[BundleFault]:
    """Why the bundle cannot be evaluated at all: compile errors, or else the linter's faults."""
    return _compile(modules, time) or _lint(modules, time, server=server)


def warm(engine: Any, time: DecisionTime) -> None:
    """The first evaluation schedules every statement; better at load than under a deadline."""
    for entrypoint in entrypoints.ENTRYPOINTS:
        evaluate(engine, time, query_of(entrypoint), SAMPLES[0])


def _compile(modules: Modules, time: DecisionTime) -> list[BundleFault]:
    """Each file alone, so that one broken file does not hide another; then all together."""
    faults = []
    for path, text in modules.texts.items():
        try:
            load(Modules({path: text}, {}), time)
        except RuntimeError as error:
            faults.append(fault_of(error, path, advice.SYNTAX))
    if faults:
        return faults
    try:
        engine = load(modules, time)
        engine.set_input_json("{}")
        engine.eval_query_as_json("true")
    except RuntimeError as error:
        return [fault_of(error, "data")]
    return []


def _tree(modules: Modules, time: DecisionTime) -> list[dict[str, Any]]:
    tree: list[dict[str, Any]] = json.loads(load(modules, time).get_ast_as_json())
    return tree


def _lint(modules: Modules, time: DecisionTime, *, server: bool) -> list[BundleFault]:
    tree = _tree(modules, time)
    return [*lint(tree, modules.data), *(server_faults(tree, modules.data) if server else ())]


def _probe(modules: Modules, time: DecisionTime) -> list[BundleFault]:
    deciding = modules.without_tests()
    heads = _heads(_tree(deciding, time))
    engine = load(deciding, time)
    faults = []
    for entrypoint in entrypoints.ENTRYPOINTS:
        head = heads.get(query_of(entrypoint))
        faults += [missing(entrypoint)] if head is None else _sample(engine, time, entrypoint, *head)
    return faults


def _heads(tree: list[dict[str, Any]]) -> dict[str, tuple[Module, Node]]:
    """Where each rule is first defined, by full path."""
    heads: dict[str, tuple[Module, Node]] = {}
    for module in map(Module.from_ast, tree):
        for path, node in rule_names(module):
            heads.setdefault(".".join((*module.package, *path)), (module, node))
    return heads


def _sample(engine: Any, time: DecisionTime, entrypoint: str, module: Module, node: Node) -> list[BundleFault]:
    for sample in SAMPLES:
        answer = evaluate(engine, time, query_of(entrypoint), sample, quoting=True)
        if "error" in answer:
            return [module.fault(node, f"{entrypoint}: {answer['error']}", advice.next_step(answer["error"]))]
        if wrong := misfit(entrypoint, answer):
            return [module.fault(node, *wrong)]
    return []


def _tests(modules: Modules, time: DecisionTime) -> tuple[list[BundleFault], int]:
    """By name from the tree: a failing test is absent from the package's value, not false in it."""
    engine = load(modules, time)
    faults: list[BundleFault] = []
    count = 0
    for name, (module, node) in _heads(_tree(modules, time)).items():
        if not name.removeprefix(".".join(module.package) + ".").startswith("test_"):
            continue
        count += 1
        if why := why_failed(engine, time, name):
            faults.append(module.fault(node, f"{name.removeprefix('data.')} fails: {why}", advice.RULE_OR_TEST))
    return faults, count


def why_failed(engine: Any, time: DecisionTime, query: str) -> str:
    """Evaluates a test; empty if it passes."""
    answer = evaluate(engine, time, query, b"{}", quoting=True)
    return "" if answer.get("value") is True else str(answer.get("error", advice.FAILING))
