"""Child side: a copy of a bundle in which every rule head reports that it was computed.

The engine reports coverage by lines, and ``allow if input.x`` stands on one: the line is covered whether or not the
rule fired. So the value ``v`` of the head number n becomes ``[kblock_fired(n), v][1]``: the engine computes it when the
body held, and only then. A default must be a constant; its rules are renamed, and a rule that looks at them stands in
its place. What decides is never the copy: its answer must equal the original's, or the explanation is refused.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.deciding.explanation import Kind, Rule
from kblockd.policy.embedded.modules import Modules, load
from kblockd.policy.rego.syntax import Module, Node, bound_names, constant_part, span, walk

_FIRED: Final = "kblock_fired"
_ASIDE: Final = "__kblock"


@dataclass(frozen=True, slots=True)
class _Edit:
    """``text`` in the place of the bytes from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class InstrumentedCopy:
    """An engine over the copy, and the rules that have fired in it."""

    def __init__(self, modules: Modules, time: DecisionTime) -> None:
        tree = [Module.from_ast(row) for row in json.loads(load(modules, time).get_ast_as_json())]
        self.rules: list[Rule] = []
        self._numbers: set[int] = set()
        self._defaults = _defaults(tree)
        texts = {module.file: self._copy(module) for module in tree}
        self.engine: Any = load(Modules(texts, modules.data), time)
        self.engine.add_extension(_FIRED, 1, self._note)

    def fired(self) -> list[Rule]:
        """In the order of the files."""
        return sorted(self.rules[number] for number in self._numbers)

    def _note(self, number: int) -> bool:
        self._numbers.add(int(number))
        return True

    def _number(self, module: Module, node: Node, name: str, kind: Kind) -> int:
        place = node["span"]
        self.rules.append(Rule(module.file, place["line"], place["col"], name, kind))
        return len(self.rules) - 1

    def _copy(self, module: Module) -> str:
        edits = list(_imported(module))
        more: list[str] = []
        for rule in module.rules:
            if "Default" in rule:
                more.append(self._default(module, rule["Default"], edits))
            else:
                edits += self._spec(module, rule["Spec"])
        return _edited(module, edits) + "\n" + "\n".join(more)

    def _spec(self, module: Module, spec: Node) -> Iterator[_Edit]:
        head = span(spec["head"])
        name, place = _name(module, head["refr"]), span(head["refr"])["span"]
        if name in self._defaults:
            yield _Edit(place["start"], place["end"], _aside(module, name))
        number = self._number(module, spec, name, "rule" if spec["bodies"] else "value")
        if "key" in head:
            yield from _around(module, place["end"], "contains", _end(module, head), number)
        else:
            yield from _value(module, head, number, head["span"]["end"])
        for body in spec["bodies"]:
            if body["is_else"]:
                word = body["span"]["start"] + len("else")
                yield from _value(module, body, self._number(module, body, name, "else"), word)

    def _default(self, module: Module, default: Node, edits: list[_Edit]) -> str:
        """Takes it out, but for its lines, and gives the rules that stand in its place."""
        name, place = _name(module, default["refr"]), {**default["span"], "end": _end(module, default)}
        text, refr = module.text(place), module.text(span(default["refr"])["span"])
        edits.append(_Edit(place["start"], place["end"], "\n" * text.count("\n")))
        arguments = ", ".join(f"a{_ASIDE}{number}" for number, _ in enumerate(default["args"]))
        call = f"({arguments})" if arguments else ""
        number = self._number(module, default, name, "default")
        value = f"[{_FIRED}({number}), {text.partition('=')[2]}][1]"
        if name not in self._defaults:
            return f"{refr}{call} := {value}"
        aside = _aside(module, name)
        return (
            f"{refr}{call} := {aside}{call}\n"
            f"{aside}_given{call} if _ := [{aside}{call}]\n"  # whatever it is, false too
            f"{refr}{call} := {value} if not {aside}_given{call}"
        )


def _defaults(tree: Sequence[Module]) -> set[str]:
    """Names that have a default and other rules."""
    kinds: dict[str, set[bool]] = defaultdict(set)
    for module in tree:
        for rule in module.rules:
            node = rule.get("Default") or span(rule["Spec"]["head"])
            kinds[_name(module, node["refr"])].add("Default" in rule)
    return {name for name, found in kinds.items() if len(found) == 2}


def _aside(module: Module, name: str) -> str:
    """Where the rules of ``name`` go when their default is taken out."""
    return re.sub(r"\W", "_", name.removeprefix(".".join(module.package[1:]) + ".")) + _ASIDE


def _value(module: Module, node: Node, number: int, end: int) -> Iterator[_Edit]:
    """Of ``name := value`` and ``else := value``; where no value stands, it is true."""
    if assign := node["assign"]:
        yield from _around(module, assign["span"]["start"], "=", _end(module, assign), number)
    else:
        yield _Edit(end, end, f" := {_FIRED}({number})")


def _around(module: Module, start: int, mark: str, end: int, number: int) -> Iterator[_Edit]:
    """Around what stands between the first ``mark`` after ``start`` and ``end``."""
    begin = module.contents.index(mark.encode(), start) + len(mark)
    yield _Edit(begin, begin, f" [{_FIRED}({number}), (")
    yield _Edit(end, end, ")][1]")


def _imported(module: Module) -> Iterator[_Edit]:
    """Whole paths in the place of imported names: the engine computes every rule of a package that is imported."""
    bound = set(bound_names(module))
    for kind, node in walk(module.rules):
        path = module.aliases.get(node["value"]) if kind == "Var" else None
        if path and len(path) > 1 and node["value"] not in bound:
            quoted = "".join(f"[{json.dumps(part)}]" for part in path[1:])
            yield _Edit(node["span"]["start"], node["span"]["end"], path[0] + quoted)


def _end(module: Module, node: Node) -> int:
    """The span of a string, and of what ends in one, ends before the quote."""
    end: int = node["span"]["end"]
    return end + (module.contents[end : end + 1] in (b'"', b"`"))


def _edited(module: Module, edits: Sequence[_Edit]) -> str:
    contents = module.contents
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end), reverse=True):
        contents = contents[: edit.start] + edit.text.encode() + contents[edit.end :]
    return contents.decode()


def _name(module: Module, refr: Node) -> str:
    return ".".join((*module.package[1:], *constant_part(refr)))
