"""``policy eval|test|check`` and the RPC Explain, by the configured engine and in temporary processes, so that the
deciding engine and its deadline are unaffected.

OPA modules are imported only where OPA is configured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kblockd.authoring import reviewer
from kblockd.authoring.embedded.processes import EmbeddedObserver, EmbeddedTester
from kblockd.authoring.explain import explain_by
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.authoring.trials import Trials
from kblockd.config import PolicySettings
from kblockd.decision_point import embedded_limits, opa_limits
from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.evaluator import Evaluator
from kblockd.policy.deciding.explanation import Explanation
from kblockd.policy.embedded.engine import ENGINE
from kblockd.policy.faults import refusal


async def explain(
    settings: PolicySettings,
    bundle: Bundle,
    entrypoint: str,
    document: Mapping[str, Any],
    clock: Clock,
    ids: Ids,
    *,
    quoting: bool = False,
) -> Explanation:
    """The configured engine's decision by ``bundle`` for an input, and which rules fired; raises ``BundleRefused``.

    ``quoting``: errors may quote the input, because its author reads them.
    """
    opa = settings.opa
    if opa is None:
        evaluator = Evaluator(ENGINE, clock, ids)
        observer = EmbeddedObserver(embedded_limits(settings), quoting)
        return await explain_by(bundle, entrypoint, document, observer, evaluator, settings.floors)
    if opa.command is None:
        message = "a remote OPA does not tell which rules fired"
        raise refusal("policy.opa", message, "name an OPA binary as policy.opa.command")
    from kblockd.authoring.opa.fired_rules import OpaObserver

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        by_opa = OpaObserver(opa.command, Path(folder), opa_limits(settings), quoting)
        evaluator = Evaluator("opa", clock, ids)
        return await explain_by(bundle, entrypoint, document, by_opa, evaluator, settings.floors)


async def run_tests(settings: PolicySettings, bundle: Bundle, only: str) -> Trials:
    """Runs the tests of ``bundle`` whose name matches ``only`` (RE2); raises ``BundleRefused``."""
    opa = settings.opa
    if opa is None or opa.command is None:
        return await EmbeddedTester(embedded_limits(settings)).test(bundle, only)
    from kblockd.authoring.opa.trials import OpaTester

    with tempfile.TemporaryDirectory(prefix="kblockd-") as folder:
        return await OpaTester(opa.command, Path(folder), opa_limits(settings)).test(bundle, only)


async def review(settings: PolicySettings, bundle: Bundle) -> tuple[ReviewFinding, ...]:
    """Findings about ``bundle`` for its authors, beyond what an activation checks."""
    return await reviewer.review(bundle, embedded_limits(settings), server=settings.opa is not None)
