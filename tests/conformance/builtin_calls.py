"""Calls of every builtin over one pool of operands, fitting and not, and what both engines say to each."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kblockd.policy.builtins.allowed import ARITY
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, load

SEED = 12
SAMPLED = 150
"""Calls of a builtin of two or three arguments; those of one argument meet the whole pool."""

# Numbers that kblockd's canonical form refuses, and those that differ by their print only (2.0, 1e21), are left out.
POOL: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 10, 16, 64, 1.5, -2.5, 0.25, 9007199254740992, 1767225600000000000),
    *("", "a", "A", "abc", "ab", ",", "a,b", "b", "1", "-1", "1.5", "0x10", " 1 ", "1e3", "1e600000000", "0600"),
    *("ß", "İSTANBUL", "ΣΑΣ", "straße", "ﬁ", "ǅ", "é💶e\u0301", "\u0000x", "\u00a0x\u3000", "<&>\u2028\u007f", "a\nb"),
    *("[1,2]", '{"a": 1.5, "b<": "&"}', '{"a": 1, "a": 2}', "YWJj", "YQ==", "-_-_", "a%20b+c", "a=1&b=2&a=3"),
    *("10.0.0.0/30", "1.2.3", "1.2.3-a", "2h45m", "UTC", "2006-01-02", "2026-01-01", "%s %d %v", "*?[]{}\\-!,"),
    *([], [1, "a"], ["a", "b"], ["b", "a", "ab"], [3, 1, 2], [[1], [2]], ["a/b"], [None, True, 0, "x", [], {}]),
    *([{"op": "add", "path": "/x", "value": 1}], [1767225600000000000, "UTC"]),
    *({"b ": ["x", "ä&"], "a": "*"}, "a=1;b=2", "%zz", "%ff", "a=%20b&&=c&d", "+ +"),
    *({}, {"a": 1}, {"a": {"b": [1, 2]}, "c": "d"}, {"b": 2}, {"<": "&"}, {"a": "b", "b": "a"}),
]
# What ends OPA itself: shifts and ranges of such sizes, and a number that it cannot write afterwards.
UNASKED = {
    "bits.lsh": (9007199254740992, 1767225600000000000),
    "numbers.range": (9007199254740992, 1767225600000000000),
    "numbers.range_step": (9007199254740992, 1767225600000000000),
    "to_number": ("0600",),
}
SETS = ("set()", "{1, 2}", '{"a", "b"}', "{[1, 2]}", '{null, 1, "a"}')


@dataclass(frozen=True, slots=True)
class Said:
    """``kind`` is value, undefined or error."""

    kind: str
    value: Any = None

    def __str__(self) -> str:
        return self.kind if self.kind != "value" else json.dumps(self.value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Call:
    """``operands`` are numbers of the pool, those of the sets behind it."""

    name: str
    operands: tuple[int, ...]

    def rego(self) -> str:
        """Operands come from the input, or from a function, so that OPA's compiler cannot know their types."""
        names = (f"input.p[{at}]" if at < len(POOL) else f"set{at - len(POOL)}" for at in self.operands)
        return f"{self.name}({', '.join(names)})" if self.name != "walk" else f"[p | walk({', '.join(names)}, p)]"

    def __str__(self) -> str:
        every = [*(json.dumps(value, ensure_ascii=False) for value in POOL), *SETS]
        return f"{self.name}({', '.join(every[at] for at in self.operands)})"


def calls(name: str) -> list[Call]:
    """Of one builtin; always the same."""
    arity, left_out = ARITY[name], UNASKED.get(name, ())
    asked = [at for at in range(len(POOL) + len(SETS)) if at >= len(POOL) or POOL[at] not in left_out]
    if arity == 1:
        return [Call(name, (at,)) for at in asked]
    chance = random.Random(f"{SEED} {name}")
    return [Call(name, tuple(chance.choices(asked, k=arity))) for _ in range(SAMPLED * (arity - 1))]


def batches(size: int = 900) -> Iterator[list[Call]]:
    """All calls of all builtins, so many at a time."""
    every = (call for name in sorted(ARITY) if name != "time.now_ns" for call in calls(name))
    while batch := list(itertools.islice(every, size)):
        yield batch


def module(batch: Sequence[Call]) -> tuple[str, int]:
    """A rule a call, and the line of the first."""
    head = ["package calls", "import rego.v1", "ident(x) := x"]
    head += [f"set{number} := ident({text})" for number, text in enumerate(SETS)]
    return "\n".join([*head, *(f"r{at} := {call.rego()}" for at, call in enumerate(batch))]) + "\n", len(head) + 1


def by_opa(program: Path, batch: Sequence[Call], folder: Path) -> list[Said]:
    """One process for all of them; errors come back with their lines."""
    text, first = module(batch)
    (folder / "calls.rego").write_text(text)
    (folder / "input.json").write_text(json.dumps({"p": POOL}))
    command = [program, "eval", "--format=json", "--show-builtin-errors", "--input", folder / "input.json"]
    command += ["--data", folder / "calls.rego", "data.calls"]
    reply = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    values = reply["result"][0]["expressions"][0]["value"]
    failed = {error["location"]["row"] - first for error in reply.get("errors", ())}
    return [
        Said("value", values[f"r{at}"]) if f"r{at}" in values else Said("error" if at in failed else "undefined")
        for at in range(len(batch))
    ]


def by_engine(batch: Sequence[Call]) -> Iterator[Said]:
    """The embedded engine, one rule after another; a panic, which ends its process in the daemon, is an error."""
    engine = _engine(batch)
    for at in range(len(batch)):
        try:
            value = json.loads(engine.eval_rule_as_json(f"data.calls.r{at}"))
        except RuntimeError:
            yield Said("error")
        except BaseException as panic:
            if type(panic).__name__ != "PanicException":
                raise
            engine = _engine(batch)
            yield Said("error")
        else:
            yield Said("undefined") if value == "<undefined>" else Said("value", value)


def _engine(batch: Sequence[Call]) -> Any:
    engine = load(Modules({"calls.rego": module(batch)[0]}, {}), DecisionTime())
    engine.set_input_json(json.dumps({"p": POOL}))
    return engine
