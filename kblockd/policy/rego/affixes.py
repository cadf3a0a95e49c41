"""``startswith(x, "a")`` in a rule body where ``x`` may not be a string: OPA answers undefined, not an error (APV-08).

OPA indexes rules by ``startswith``, ``endswith``, ``glob.match`` and ``strings.any_…_match``: a value of another type
leaves the rule out before the builtin sees it, even with strict builtin errors. ``bad if startswith(input.v, "x")`` is
then undefined for 7, and ``allow if not bad`` allows; the embedded engine has an error, which denies. So the operand
must certainly be a string: by ``is_string`` before it in the same body, by an equality with a text, or by the schema of
the input. Nested calls, ``not`` and ``with`` are never indexed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kblockd.policy.faults import BundleFault

SILENT: Final[Mapping[str, int]] = {
    "endswith": 0,
    "glob.match": 2,
    "startswith": 0,
    "strings.any_prefix_match": 0,
    "strings.any_suffix_match": 0,
}
"""What OPA 1.22.3 indexes so, and by which operand; an activation by OPA asks it for others (``opa.silence``)."""

IsText = Callable[[tuple[str, ...]], bool]
"""Whether a path below ``input`` or ``data`` holds a string whenever it holds anything."""


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, within a path or at its head."""

    name: str


Part = str | Name


@dataclass(frozen=True, slots=True)
class Operand:
    """``path``: a reference, its head first, () for anything else; ``literal``: a constant string."""

    path: tuple[Part, ...] = ()
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """``call`` of a builtin, ``bind`` for ``:=`` and ``=``, ``equal`` for ``==``; without ``not`` and ``with``."""

    call: str
    operands: tuple[Operand, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class RuleBody:
    """Of one rule, ``else`` or function, top level only; ``arguments`` are the function's."""

    file: str
    statements: tuple[Statement, ...]
    arguments: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Known:
    """What the statements so far say."""

    bound: Mapping[str, Operand]
    texts: set[tuple[Part, ...]] = field(default_factory=set)


def faults(bodies: Iterable[RuleBody], is_text: IsText, silent: Iterable[str] = SILENT) -> Iterator[BundleFault]:
    """One for each operand that may be no string."""
    names = frozenset(silent)
    for body in bodies:
        known = _Known(_bound(body))
        for each in body.statements:
            operands = tuple(_resolved(operand, known.bound) for operand in each.operands)
            if each.call in names and any(_doubtful(one, body, known, is_text) for one in _judged(each, operands)):
                yield _fault(body, each)
            _learn(each, operands, known)


def _bound(body: RuleBody) -> Mapping[str, Operand]:
    """What local variables stand for, wherever ``=`` says so and on either side: OPA knows that, too."""
    bound: dict[str, Operand] = {}
    ready: deque[tuple[str, Operand]] = deque()
    waiting: defaultdict[str, list[tuple[str, Operand]]] = defaultdict(list)
    for each in body.statements:
        if each.call != "bind" or len(each.operands) != 2:
            continue
        for one, other in (each.operands, each.operands[::-1]):
            name, needed = _local(one, body), _local(other, body)
            if name is None or len(one.path) > 1:
                continue
            if needed is not None:
                waiting[needed].append((name, other))
            elif other.literal is not None:
                ready.appendleft((name, other))
            elif other.path:
                ready.append((name, other))
    while ready:
        name, value = ready.popleft()
        if name not in bound:
            bound[name] = _resolved(value, bound)
            ready.extend(waiting[name])
    return bound


def _local(operand: Operand, body: RuleBody) -> str | None:
    """The variable that it starts with, which is none of the arguments."""
    head = operand.path[0] if operand.path else None
    return head.name if isinstance(head, Name) and head.name not in body.arguments else None


def _judged(statement: Statement, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Of a builtin that only the probe knows, every operand."""
    at = SILENT.get(statement.call)
    return operands if at is None else operands[at : at + 1]


def _fault(body: RuleBody, at: Statement) -> BundleFault:
    what = f"{at.call} over a value that may be no string: OPA answers undefined there, not an error"
    step = "write is_string(...) of that operand on a line before it, in the same body"
    return BundleFault(body.file, at.line, at.column, what, step)


def _resolved(operand: Operand, bound: Mapping[str, Operand]) -> Operand:
    """With local variables replaced by what they were bound to."""
    if not operand.path:
        return operand
    parts = tuple(_plugged(part, bound) for part in operand.path[1:])
    head = operand.path[0]
    if isinstance(head, Name) and (value := bound.get(head.name)) is not None:
        return Operand((*value.path, *parts)) if value.path else value if not parts else Operand()
    return Operand((head, *parts))


def _plugged(part: Part, bound: Mapping[str, Operand]) -> Part:
    value = bound.get(part.name) if isinstance(part, Name) else None
    return value.literal if value and value.literal is not None else part


def _doubtful(operand: Operand, body: RuleBody, known: _Known, is_text: IsText) -> bool:
    """Only what is written out below input or data, and arguments of a function, come into an index."""
    path = operand.path
    if not path or path in known.texts:
        return False
    head, *rest = path
    if isinstance(head, Name):
        return head.name in body.arguments
    written = tuple(part for part in rest if isinstance(part, str))
    return len(written) == len(rest) and not is_text((head, *written))


def _learn(statement: Statement, operands: tuple[Operand, ...], known: _Known) -> None:
    if statement.call == "is_string":
        known.texts.update(operand.path for operand in operands if operand.path)
    elif statement.call in ("bind", "equal") and len(operands) == 2:
        for one, other in (operands, operands[::-1]):
            if other.literal is not None and one.path:
                known.texts.add(one.path)
