"""Both engines as they run tests and say which rules fire."""

from __future__ import annotations

from pathlib import Path

from kblockd.authoring.embedded.processes import EmbeddedObserver, EmbeddedTester
from kblockd.authoring.explain import Observer
from kblockd.authoring.opa.fired_rules import OpaObserver
from kblockd.authoring.opa.trials import OpaTester
from kblockd.authoring.trials import Tester
from kblockd.policy.opa.process import OpaLimits
from tests.contract.policy.support import PATIENT, opa_binary

_OPA_LIMITS = OpaLimits(PATIENT.evaluate_seconds, PATIENT.load_seconds, PATIENT.memory_mib)


def observer(engine: str, run_dir: Path, *, quoting: bool = False) -> Observer:
    """``run_dir`` is for OPA's files, and empty again afterwards."""
    if engine == "embedded":
        return EmbeddedObserver(PATIENT, quoting)
    return OpaObserver(opa_binary(), run_dir, _OPA_LIMITS, quoting)


def runner(engine: str, run_dir: Path) -> Tester:
    """As ``observer``."""
    return EmbeddedTester(PATIENT) if engine == "embedded" else OpaTester(opa_binary(), run_dir, _OPA_LIMITS)
