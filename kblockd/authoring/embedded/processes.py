"""The embedded engine's side of ``policy test|eval|check``: each request runs in a child that is killed afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kblockd.authoring.explain import Observed
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.authoring.trials import Lines, Trial, Trials
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.explanation import rules_of
from kblockd.policy.embedded import throwaway
from kblockd.policy.embedded.pool import EmbeddedLimits

WORKER: Final = "kblockd.authoring.embedded.worker"


@dataclass(frozen=True, slots=True)
class EmbeddedObserver:
    """``quoting``: errors may quote the input; only for callers who supplied it."""

    limits: EmbeddedLimits
    quoting: bool = False

    async def observe(self, bundle: Bundle, entrypoint: str, document: bytes) -> Observed:
        """See ``Observer``."""
        header = {"op": "explain", "entrypoint": entrypoint, "document": document.decode(), "quoting": self.quoting}
        return await throwaway.ask(header, bundle, self.limits, "explaining it", _observed, WORKER)


@dataclass(frozen=True, slots=True)
class EmbeddedTester:
    """Takes at most ``load_seconds``."""

    limits: EmbeddedLimits

    async def test(self, bundle: Bundle, only: str) -> Trials:
        """See ``Tester``."""

        def read(reply: Mapping[str, Any]) -> Trials:
            tests = [Trial.from_json(row) for row in reply["tests"]]
            lines = [Lines.from_json(row) for row in reply["lines"]]
            return Trials.of("embedded", bundle, tests, rules_of(reply["rules"]), rules_of(reply["fired"]), lines)

        return await throwaway.ask({"op": "test", "only": only}, bundle, self.limits, "testing it", read, WORKER)


async def review_rules(
    bundle: Bundle, limits: EmbeddedLimits, schema: Mapping[str, Any], *, server: bool
) -> tuple[ReviewFinding, ...]:
    """The findings in the rules of ``bundle``; raises ``BundleRefused`` for one that the engine cannot parse."""
    header = {"op": "review", "schema": schema, "server": server}
    return await throwaway.ask(header, bundle, limits, "reviewing it", _findings, WORKER)


def _observed(reply: Mapping[str, Any]) -> Observed:
    return Observed(dict(reply["answer"]), rules_of(reply["rules"]))


def _findings(reply: Mapping[str, Any]) -> tuple[ReviewFinding, ...]:
    return tuple(ReviewFinding.from_json(row) for row in reply["findings"])
