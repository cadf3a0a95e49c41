"""The parts of documents that are generated from the code: ``python -m tests.documents`` writes them.

A part is between ``<!-- generated: NAME -->`` and ``<!-- end: NAME -->``; a test keeps all of them current. The tables
of kblockd/domain/README.md, kblockd/telemetry/README.md and kblockd/upstream/hostile.md have commands of their own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from kblockd.domain.stages import Stage
from kblockd.evidence import codec, receipts
from kblockd.evidence.statements import Approval, Disposition, Receipt, Result
from kblockd.policy.deciding import entrypoints
from kblockd.rpc import status
from kblockd.telemetry.contract import SPANS
from kblockd.upstream.adapter import Sent

ROOT: Final = Path(__file__).parents[1]
_ELSEWHERE: Final = {
    "authenticate": "../rpc/identity.py",
    "await_approval": "../approvals/service.py",
    "hold": "seal.py",
}
_WITHOUT_SPAN: Final = {"kblock.track": "polls of an accepted operation until it has ended, within `reconcile`"}
_STATEMENTS: Final = (Approval, Result, Receipt, Disposition)
_ASKED_AT: Final = {
    "authz": "0",
    "decision": "3",
    "preconditions": "8",
    "verification": "14, once a poll",
    "recovery": "15",
}


def stages() -> Iterator[str]:
    """The stages in their order, with the module of each."""
    yield "| | stage | does | module |"
    yield "|---|---|---|---|"
    covers = {span.name: span.covers for span in SPANS} | _WITHOUT_SPAN
    for stage in Stage:
        module = _ELSEWHERE.get(stage.label, f"{stage.label}.py")
        yield f"| {stage.order} | `{stage.label}` | {covers[f'kblock.{stage.label}']} | [`{module}`]({module}) |"


def reasons() -> Iterator[str]:
    """Every reason under the gRPC code that it has by itself."""
    codes: dict[str, list[str]] = {}
    for reason, code in status.REASONS.items():
        codes.setdefault(code.name, []).append(f"`{reason}`")
    yield "| code | reasons |"
    yield "|---|---|"
    yield from (f"| {code} | {', '.join(words)} |" for code, words in codes.items())


def sent() -> Iterator[str]:
    """The outcomes of an exchange, with what stands beside each in the source."""
    meanings = dict(re.findall(r"^ +(\w+) = .*?# (.+)$", inspect.getsource(Sent), re.M))
    yield "| outcome | means |"
    yield "|---|---|"
    yield from (f"| {word.name} | {meanings[word.name]} |" for word in Sent)


def questions() -> Iterator[str]:
    """The entry points with the keys that a result must have, no more and no fewer."""
    yield "| entry point | stage | keys of the result |"
    yield "|---|---|---|"
    for entrypoint in entrypoints.ENTRYPOINTS:
        stage = _ASKED_AT[entrypoint.split("/")[1]]
        keys = ", ".join(_key(name, shape) for name, shape in entrypoints._SHAPES[entrypoint].items())
        yield f"| `{entrypoint}` | {stage} | {keys}, `reasons` |"


def _key(name: str, shape: Any) -> str:
    if isinstance(shape, set):
        return f"`{name}` ({', '.join(sorted(shape))})"
    if isinstance(shape, dict):
        return f"`{name}` ({', '.join(f'`{inner}`' for inner in shape)})"
    return f"`{name}`"


def statements() -> Iterator[str]:
    """The kinds of statement: subjects, predicate members as they are written, and the role of the key."""
    yield "| statement | signed by | subjects | members of the predicate |"
    yield "|---|---|---|---|"
    for kind in _STATEMENTS:
        members = (field.name for field in fields(kind) if field.name not in {*kind.SUBJECTS, "output_sha256"})
        described = [f"`{codec.camel(name)}`" for name in members]
        if kind is Result:
            described.append("`output`")
        subjects = ", ".join(f"`{subject}`" for subject in kind.SUBJECTS)
        yield f"| {kind.__name__} | {receipts.ROLES[kind.KIND]} key | {subjects} | {', '.join(described)} |"


PARTS: Final[Mapping[str, tuple[Path, Callable[[], Iterator[str]]]]] = {
    "stages": (ROOT / "kblockd" / "execution" / "README.md", stages),
    "reasons": (ROOT / "kblockd" / "rpc" / "README.md", reasons),
    "sent": (ROOT / "kblockd" / "upstream" / "README.md", sent),
    "questions": (ROOT / "kblockd" / "policy" / "README.md", questions),
    "statements": (ROOT / "kblockd" / "evidence" / "README.md", statements),
}


def current(name: str, text: str) -> str:
    """A document with its part ``name`` as the code has it now; raises ValueError where the marks are missing."""
    begin, end = f"<!-- generated: {name} -->\n", f"<!-- end: {name} -->"
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start] + "".join(f"{line}\n" for line in PARTS[name][1]()) + text[stop:]


if __name__ == "__main__":
    for part, (file, _) in PARTS.items():
        file.write_text(current(part, file.read_text(encoding="utf-8")), encoding="utf-8")
