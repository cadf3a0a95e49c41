"""A run of a bundle's tests by OPA: once for the verdicts, once for the coverage report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kblockd.authoring.opa.fired_rules import covered, heads_of
from kblockd.authoring.trials import Lines, Trial, Trials
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.faults import BundleRefused, LoadFailed
from kblockd.policy.opa.check import compiled, test_name, why_failed
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.workshop import Workshop, opened, shown


@dataclass(frozen=True, slots=True)
class OpaTester:
    """``program`` is the OPA binary."""

    program: Path
    run_dir: Path
    limits: OpaLimits

    async def test(self, bundle: Bundle, only: str) -> Trials:
        """See ``Tester``."""
        async with opened(bundle, self.program, self.run_dir, self.limits, "testing it") as shop:
            if faults := await compiled(shop):
                raise BundleRefused(faults, revision=bundle.revision)
            chosen = ("--run", only) if only else ()
            tests = [_test(row) for row in await _said(shop, *chosen) or [] if not row.get("skip")]
            report = await _report(shop, [test for test in tests if test.passed])
            heads = await heads_of(shop, bundle.deciding())
        rules = [head.rule for head in heads]
        return Trials.of("opa", bundle, tests, rules, covered(heads, report), _lines(bundle, report))


async def _said(shop: Workshop, *arguments: str) -> Any:
    code, output = await shop.test(*arguments)
    try:
        return json.loads(output)
    except ValueError:
        raise LoadFailed(f"opa test ended with {code}: {shown(output)}") from None


async def _report(shop: Workshop, passed: Sequence[Trial]) -> Mapping[str, Any]:
    """Of the tests that passed: OPA reports no coverage beside one that fails."""
    if not passed:
        return {}
    names = "|".join(re.escape(test.name) for test in passed)
    report: Mapping[str, Any] = await _said(shop, "--coverage", "--run", rf"^data\.({names})$")
    return report


def _test(row: Mapping[str, Any]) -> Trial:
    where = row["location"]
    file, line, column = str(where["file"]).removeprefix("./"), int(where["row"]), int(where["col"])
    return Trial(file, line, column, test_name(row), why_failed(row))


def _lines(bundle: Bundle, report: Mapping[str, Any]) -> Iterator[Lines]:
    files = {file.removeprefix("./"): row for file, row in (report.get("files") or {}).items()}
    for file in bundle.deciding():
        row = files.get(file, {})
        seen = set(_rows(row.get("covered") or ()))
        yield Lines(file, tuple(sorted(seen)), tuple(sorted(set(_rows(row.get("not_covered") or ())) - seen)))


def _rows(ranges: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    for each in ranges:
        yield from range(int(each["start"]["row"]), int(each["end"]["row"]) + 1)
