"""The embedded Rego engine: regorus in killable children, one revision at a time, swapped as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy.activation.loading import LoadingEngine
from kblockd.policy.bundles.bundle import Bundle, Reader, read
from kblockd.policy.deciding.evaluator import Evaluator
from kblockd.policy.embedded import throwaway
from kblockd.policy.embedded.pool import EmbeddedLimits, Pool
from kblockd.policy.faults import BundleFault, BundleRefused

ENGINE: Final = "embedded"
UNTESTED: Final = BundleFault(
    ".",
    0,
    0,
    "the bundle has no test (a rule whose name starts with test_)",
    "add a *_test.rego file that asks what must be denied, or set policy.require_tests: false",
)


class EmbeddedEngine(LoadingEngine):
    """A ``LoadingEngine`` over regorus in killable children."""

    def __init__(
        self, limits: EmbeddedLimits, clock: Clock, ids: Ids, reader: Reader = read, *, require_tests: bool = False
    ) -> None:
        super().__init__(
            Evaluator(ENGINE, clock, ids),
            lambda bundle: check(bundle, limits, require_tests=require_tests),
            lambda bundle: Pool(bundle, limits),
            reader,
        )


async def check(bundle: Bundle, limits: EmbeddedLimits, *, server: bool = False, require_tests: bool = False) -> Bundle:
    """Lint, compile, probes and the bundle's own tests in a throw-away child; raises ``BundleRefused``.

    The bundle comes back with the number of tests that passed. Anything that kills the child or takes longer than
    ``load_seconds`` refuses the bundle: a parser bomb, a runaway test, a bundle that wants too much memory.
    ``server``: the bundle is meant for an OPA server, where ``time.now_ns`` is not the decision's time.
    ``require_tests``: refuses a bundle without tests.
    """
    header = {"op": "check", "server": server}
    tests = await throwaway.ask(header, bundle, limits, "checking it", lambda reply: int(reply["tests"]))
    if require_tests and not tests:
        raise BundleRefused([UNTESTED], revision=bundle.revision)
    return replace(bundle, tests=tests)
