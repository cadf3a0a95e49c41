"""The rules that fire in OPA: ``opa eval`` with its coverage report, in which every head has a place of its own."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kblockd.authoring.explain import Observed
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.explanation import Kind, Rule
from kblockd.policy.faults import BundleRefused, LoadFailed
from kblockd.policy.opa import replies
from kblockd.policy.opa.check import compiled
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.workshop import CAPABILITIES, Workshop, opened, shown

# Otherwise OPA leaves out what cannot change the answer: of two rules that give the same value it would try one, and of
# rules in an index those alone that can match.
_FLAGS: Final = (
    "--format=json",
    "--coverage",
    "--coverage-runs=",
    "--disable-early-exit",
    "--disable-indexing",
    "--strict-builtin-errors",
)


@dataclass(frozen=True, slots=True)
class OpaObserver:
    """``program`` is the OPA binary. ``quoting``: errors may quote the input."""

    program: Path
    run_dir: Path
    limits: OpaLimits
    quoting: bool = False

    async def observe(self, bundle: Bundle, entrypoint: str, document: bytes) -> Observed:
        """See ``Observer``."""
        async with opened(bundle, self.program, self.run_dir, self.limits, "explaining it") as shop:
            if faults := await compiled(shop):
                raise BundleRefused(faults, revision=bundle.revision)
            (shop.folder / "input.json").write_bytes(document)
            query = "data." + entrypoint.replace("/", ".")
            code, output = await shop.opa("eval", *_FLAGS, CAPABILITIES, "--input=../input.json", "--bundle=.", query)
            try:
                found = json.loads(output)
                reply = self._reply(found)
            except (ValueError, KeyError, TypeError, IndexError):
                raise LoadFailed(f"opa eval ended with {code}: {shown(output)}") from None
            report = found.get("coverage") or {}
            seen = {file.removeprefix("./") for file, row in _files(report) if row.get("covered")}
            heads = await heads_of(shop, seen & bundle.modules.keys())
        return Observed(reply, tuple(sorted(covered(heads, report))))

    def _reply(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        if errors := found.get("errors"):
            return {"error": "; ".join(map(self._error, errors[:3])), "rule": replies.of_a_rule(errors)}
        if not (rows := found.get("result")):
            return {"undefined": True}
        return {"value": rows[0]["expressions"][0]["value"]}

    def _error(self, row: Mapping[str, Any]) -> str:
        where = row.get("location") or {}
        place = f"{str(where['file']).removeprefix('./')}:{where['row']}:{where['col']}: " if where.get("file") else ""
        what = str(row["message"]) if self.quoting else "the rule raised an error"
        return f"{place}{' '.join(what.split())[:500]}"


@dataclass(frozen=True, slots=True)
class RuleHead:
    """A rule, and where its head ends: an ``else`` and its condition may begin at the same place."""

    rule: Rule
    end: tuple[int, int]


def covered(heads: Iterable[RuleHead], report: Mapping[str, Any]) -> Iterator[Rule]:
    """Rules whose head was computed, by a coverage report of OPA; one without columns knows the lines only."""
    ranges = {
        (file.removeprefix("./"), *_place(each["start"]), *_place(each["end"]))
        for file, row in _files(report)
        for each in row.get("covered") or ()
    }
    lines = {(file, line) for file, line, column, _, _ in ranges if column is None}
    for head in heads:
        rule = head.rule
        if (rule.file, rule.line, rule.column, *head.end) in ranges or (rule.file, rule.line) in lines:
            yield rule


async def heads_of(shop: Workshop, files: Iterable[str]) -> list[RuleHead]:
    """Every rule of these files of the bundle."""
    return [head for file in files for head in _heads(file, await shop.parsed(file))]


def _files(report: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    return (report.get("files") or {}).items()


def _place(where: Mapping[str, Any]) -> tuple[int, int | None]:
    return where["row"], where.get("col")


def _heads(file: str, tree: Mapping[str, Any]) -> Iterator[RuleHead]:
    package = [str(part["value"]) for part in tree["package"]["path"][1:]]
    for each in tree.get("rules") or ():
        name = ".".join([*package, *_constant(each["head"]["ref"])])
        yield _head(file, each, name, _kind(each))
        while each := each.get("else"):
            yield _head(file, each, name, "else")


def _head(file: str, node: Mapping[str, Any], name: str, kind: Kind) -> RuleHead:
    """OPA's places count characters; of a default it covers the word alone."""
    where = node["location"] if kind == "default" else node["head"]["location"]
    line, column = int(where["row"]), int(where["col"])
    *before, last = base64.b64decode(where["text"]).decode(errors="replace").split("\n")
    end = (line + len(before), len(last) + (1 if before else column))
    return RuleHead(Rule(file, line, column, name, kind), end)


def _kind(node: Mapping[str, Any]) -> Kind:
    if node.get("default"):
        return "default"
    return "value" if all(each.get("generated") for each in node["body"]) else "rule"


def _constant(ref: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for position, part in enumerate(ref):
        if position and part["type"] != "string":
            return
        yield str(part["value"])
