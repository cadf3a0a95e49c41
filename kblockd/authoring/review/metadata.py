"""``# METADATA`` blocks: comments in YAML above a package or a rule, as OPA reads them, with the place of every key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from kblockd.authoring.review.findings import Level, ReviewFinding

_START: Final = re.compile(r"\s*#\s*METADATA\s*")
_COMMENT: Final = re.compile(r"(\s*#)(.*)")
_RULES: Final = ("rule", "document")
_PACKAGES: Final = ("package", "subpackages")
_KEYS: Final = frozenset(
    {
        "authors",
        "compile",
        "custom",
        "description",
        "entrypoint",
        "organizations",
        "related_resources",
        "schemas",
        "scope",
        "title",
    }
)


@dataclass(frozen=True, slots=True)
class Block:
    """``line`` is that of the word METADATA; ``target`` is the first line below that is code, "" at the end."""

    file: str
    line: int
    column: int
    document: Mapping[str, Any]
    target: str

    def finding(
        self, key: Sequence[Any], code: str, message: str, next_step: str, level: Level = "error"
    ) -> ReviewFinding:
        """At a key of the document, by the path to it."""
        line, column = self._place(key)
        return ReviewFinding(self.file, line, column, level, code, message, next_step)

    def _place(self, key: Sequence[Any]) -> tuple[int, int]:
        node: Any = self.document
        found = (self.line, self.column)
        for part in key:
            place = node.lc.item(part) if isinstance(part, int) else node.lc.key(part)
            found = (self.line + 1 + int(place[0]), self.column + 1 + int(place[1]))
            node = node[part]
        return found


def blocks(file: str, text: str) -> Iterator[Block | ReviewFinding]:
    """Every block of a file; a finding for one that is no YAML object."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _START.fullmatch(line):
            yield _block(file, lines, number)


def _block(file: str, lines: Sequence[str], start: int) -> Block | ReviewFinding:
    column = lines[start].index("#") + 1
    texts = []
    for line in lines[start + 1 :]:
        if not (found := _COMMENT.fullmatch(line)):
            break
        texts.append(found[2])
    try:
        document = YAML(typ="rt", pure=True).load("\n".join(texts))
    except YAMLError as error:
        return _unreadable(file, start + 1, column, error)
    if not isinstance(document, dict):
        message = "the annotation is empty" if document is None else "the annotation is not an object"
        return ReviewFinding(file, start + 1, column, "error", "metadata", message, "write `# title: …` below METADATA")
    rest = (line.strip() for line in lines[start + 1 + len(texts) :])
    target = next((line for line in rest if line and not line.startswith("#")), "")
    return Block(file, start + 1, column, document, target)


def _unreadable(file: str, line: int, column: int, error: YAMLError) -> ReviewFinding:
    if isinstance(error, MarkedYAMLError) and (mark := error.problem_mark):
        line, column = line + 1 + mark.line, column + 1 + mark.column
    what = str(getattr(error, "problem", None) or "it cannot be read")
    return ReviewFinding(file, line, column, "error", "metadata", f"the annotation is not YAML: {what}", "correct it")


def misplaced(block: Block) -> Iterator[ReviewFinding]:
    """Keys and a scope that OPA does not know, or not there."""
    for key in block.document:
        if key not in _KEYS:
            step = f"OPA knows {', '.join(sorted(_KEYS))}; put your own below custom"
            yield block.finding((key,), "metadata", f"{key} is not a key of an annotation", step, "warning")
    above_package = block.target.startswith("package ")
    scope = block.document.get("scope", "package" if above_package else "rule")
    at = [name for name in block.document if name == "scope"]
    if not block.target or block.target.startswith("import "):
        yield block.finding((), "metadata", "the annotation stands above no package and no rule", "move or remove it")
    elif scope not in (*_RULES, *_PACKAGES):
        step = f"write one of {', '.join((*_RULES, *_PACKAGES))}"
        yield block.finding(at, "metadata", f"there is no scope {scope}", step)
    elif above_package != (scope in _PACKAGES):
        what = "a package" if above_package else "a rule"
        yield block.finding(at, "metadata", f"scope {scope} above {what}", "correct the scope, or move the annotation")
