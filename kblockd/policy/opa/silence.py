"""Probes which builtins *this* OPA silences over a value of the wrong type when its rule index uses them (APV-08).

Each builtin that the bundle names is asked twice with such a value from the input, by the OPA that will decide: in a
rule's head, where it is an error, and in a rule's body. A body without the error is silent. So the next OPA's next
indexed builtin is found at an activation, not in an incident.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kblockd.policy.faults import BundleFault, LoadFailed
from kblockd.policy.opa.bodies import bodies
from kblockd.policy.opa.workshop import CAPABILITIES, Workshop, shown
from kblockd.policy.rego import affixes
from kblockd.policy.rego.text_paths import text_paths

Type = Mapping[str, Any]
_MOST_COMBINATIONS: Final = 8
_INPUT: Final = {"number": 7, "string": "a", "array": [7], "object": {"a": 7}, "boolean": True}
_PLAIN: Final = {"string": '"a"', "number": "1", "boolean": "true", "null": "null", "any": '"a"'}


@dataclass(frozen=True, slots=True)
class _Question:
    """One call, with a value of the wrong type at one place."""

    builtin: str
    operands: tuple[str, ...]


async def unguarded(shop: Workshop) -> list[BundleFault]:
    """Calls of silent builtins over what may have another type; raises ``LoadFailed`` when OPA cannot be asked."""
    silent = affixes.SILENT.keys() | await silent_builtins(shop)
    found: list[BundleFault] = []
    for file, text in shop.bundle.deciding().items():
        if any(_may_call(text, name) for name in silent):
            rows = bodies(file, await shop.parsed(file))
            found += affixes.faults(rows, text_paths(shop.bundle.data), silent)
    return found


async def silent_builtins(shop: Workshop, *, every: bool = False) -> frozenset[str]:
    """Probes the builtins that the bundle names, or with ``every`` all. Raises ``LoadFailed``."""
    text = "\n".join(shop.bundle.deciding().values())
    offered = json.loads((shop.folder / "capabilities.json").read_text())["builtins"]
    questions = [each for row in offered if every or _may_call(text, row["name"]) for each in _questions(row)]
    if not questions:
        return frozenset()
    head = ["package probe", "import rego.v1"]
    calls = [f"{each.builtin}({', '.join(each.operands)})" for each in questions]
    rules = [rule for at, call in enumerate(calls) for rule in (f"h{at} := {call}", f"b{at} if {call}")]
    failed = await _failed(shop, "\n".join([*head, *rules]) + "\n")
    first = len(head) + 1
    return frozenset(
        each.builtin
        for at, each in enumerate(questions)
        if first + 2 * at in failed and first + 2 * at + 1 not in failed
    )


def _may_call(text: str, builtin: str) -> bool:
    """By the last part of its name alone: OPA takes ``strings["any_prefix_match"](...)`` as well."""
    return builtin.rpartition(".")[2] in text


async def _failed(shop: Workshop, module: str) -> set[int]:
    """The lines with an error of a builtin."""
    (shop.folder / "probe.rego").write_text(module)
    (shop.folder / "probe.json").write_text(json.dumps(_INPUT))
    files = ("--input=../probe.json", "--data=../probe.rego")
    code, output = await shop.opa("eval", "--format=json", "--show-builtin-errors", CAPABILITIES, *files, "data.probe")
    try:
        reply = json.loads(output)
        if "result" not in reply:
            raise ValueError
        return {int(error["location"]["row"]) for error in reply.get("errors") or ()}
    except (ValueError, KeyError, TypeError):
        raise LoadFailed(f"its builtins cannot be probed, opa eval ended with {code}: {shown(output)}") from None


def _questions(row: Mapping[str, Any]) -> Iterator[_Question]:
    arguments: Sequence[Type] = row["decl"].get("args") or ()
    if any(map(row.get, ("deprecated", "relation", "infix"))) or "result" not in row["decl"]:
        return
    for at, wanted in enumerate(arguments):
        wrong = next((name for name in _INPUT if name not in _names(wanted)), None)
        if wrong is None or "any" in _names(wanted):
            continue
        samples = [_samples(each) if place != at else [f"input.{wrong}"] for place, each in enumerate(arguments)]
        for operands in itertools.islice(itertools.product(*samples), _MOST_COMBINATIONS):
            yield _Question(row["name"], operands)


def _names(type_: Type) -> set[str]:
    alternatives = type_.get("of") if type_["type"] == "any" else None
    return {name for each in alternatives for name in _names(each)} if alternatives else {type_["type"]}


def _samples(type_: Type) -> list[str]:
    """Constants of a type, one for each alternative: an index is built from constants only."""
    match type_["type"]:
        case "any" if type_.get("of"):
            return [sample for each in type_["of"] for sample in _samples(each)]
        case "array":
            items = [_samples(each)[0] for each in type_.get("static") or ()]
            items += [_samples(type_["dynamic"])[0]] if not items and type_.get("dynamic") else []
            return [f"[{', '.join(items)}]"]
        case "set":
            return [f"{{{_samples(type_.get('of') or {'type': 'any'})[0]}}}"]
        case "object":
            return [f"{{{', '.join(_fields(type_))}}}"]
        case name:
            return [_PLAIN.get(name, '"a"')]


def _fields(type_: Type) -> Iterator[str]:
    for each in type_.get("static") or ():
        yield f"{json.dumps(each['key'])}: {_samples(each['value'])[0]}"
    if not type_.get("static") and (dynamic := type_.get("dynamic")):
        yield f"{_samples(dynamic['key'])[0]}: {_samples(dynamic['value'])[0]}"
