"""The embedded engine takes no bundle that nobody has tested, unless the configuration says otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kblockd import decision_point
from kblockd.config import PolicySettings
from kblockd.config.configuration import SupervisedOpa
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.bundles.signatures import UNVERIFIED
from kblockd.policy.embedded.engine import UNTESTED, EmbeddedEngine, check
from kblockd.policy.faults import BundleRefused
from kblockd.system import RandomIds, SystemClock
from tests.contract.policy.support import PATIENT, deciding, opa_binary, write

TEST = "package a_test\nimport rego.v1\ntest_a if true\n"
NAMED_LIKE_ONE = "package a_test\nimport rego.v1\nhelper_test if true\n"
UNTESTED_TEXTS = [deciding(), {**deciding(), "a_test.rego": NAMED_LIKE_ONE}]


def settings(**changes: object) -> PolicySettings:
    """The embedded engine as shipped."""
    return replace(PolicySettings(None, Path("unused"), UNVERIFIED, 1.0, 1, 256), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", UNTESTED_TEXTS, ids=["no-test-file", "a-test-file-without-a-test"])
async def test_a_bundle_without_a_test_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(BundleRefused) as refused:
        await decision_point.check(settings(), Bundle.of(texts))
    assert list(refused.value.faults) == [UNTESTED]
    assert "policy.require_tests" in str(refused.value)


async def test_one_test_is_enough() -> None:
    assert (await decision_point.check(settings(), Bundle.of({**deciding(), "a_test.rego": TEST}))).tests == 1


async def test_the_configuration_may_say_otherwise() -> None:
    assert (await decision_point.check(settings(require_tests=False), Bundle.of(deciding()))).tests == 0


async def test_opa_has_its_own_rules(tmp_path: Path) -> None:
    """``require_tests`` is for the embedded engine; what OPA decides by is tested where it is built."""
    opa = SupervisedOpa(opa_binary(), tmp_path)
    assert (await decision_point.check(settings(opa=opa), Bundle.of(deciding()))).tests == 0


async def test_an_untested_bundle_leaves_the_old_one_in_force(tmp_path: Path) -> None:
    """At a reload too: the refusal is that of every other fault."""
    engine = EmbeddedEngine(PATIENT, SystemClock(), RandomIds(), require_tests=True)
    try:
        folder = write(tmp_path / "policy", {**deciding(), "a_test.rego": TEST})
        await engine.activate(await engine.prepare(folder))
        revision = engine.status().revision
        (folder / "a_test.rego").unlink()
        with pytest.raises(BundleRefused, match="the bundle has no test"):
            await engine.prepare(folder)
        assert engine.status().revision == revision
        assert "the bundle has no test" in engine.status().last_error
    finally:
        await engine.close()


async def test_whoever_asks_the_check_itself_says_what_it_wants() -> None:
    assert (await check(Bundle.of(deciding()), PATIENT)).tests == 0
