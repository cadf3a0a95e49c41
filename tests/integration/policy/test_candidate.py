"""A candidate on each engine: set from an archive, asked, and gone without a trace when it is cleared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kblockd.config import PolicySettings
from kblockd.config.configuration import SupervisedOpa
from kblockd.domain.errors import InvalidArgument
from kblockd.policy.bundles.signatures import UNVERIFIED
from kblockd.policy.deciding.candidate import ComparingEngine
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.opa.tarball import packed
from kblockd.policy_candidate import Candidates
from tests.contract.policy.support import CountingIds, RealClock, children, deciding, document, opa_binary
from tests.unit.policy.test_candidate import Scripted, effect


def archive(*rules: str) -> bytes:
    return packed({name: text.encode() for name, text in deciding(*rules).items()})


@pytest.mark.parametrize("engine", ["embedded", "opa"])
async def test_a_candidate_is_asked_on_its_own_engine_and_leaves_nothing(engine: str, tmp_path: Path) -> None:
    opa = SupervisedOpa(opa_binary(), tmp_path) if engine == "opa" else None
    settings = PolicySettings(opa, tmp_path, UNVERIFIED, 5.0, 1, 512)
    comparing = ComparingEngine(Scripted(effect("allow", "SMALL")))
    candidates = Candidates(comparing, settings, RealClock(), CountingIds())
    before = children()
    report = await candidates.set(archive())
    assert (report.comparison.changed, report.bundle.origin.signer) == (0, "")
    with pytest.raises(InvalidArgument):
        await candidates.set(archive("result := 7"))
    assert (await comparing.evaluate(DECISION, document())).result["effect"] == "allow"
    async with asyncio.timeout(10):
        while not (found := candidates.report()) or not found.comparison.changed:
            await asyncio.sleep(0.05)
    (difference,) = found.comparison.differences
    assert difference.in_force == "effect=allow [SMALL]"
    assert difference.candidate.startswith("effect=deny")
    cleared = await candidates.clear()
    assert cleared is not None
    assert cleared.comparison.changed == 1
    assert (candidates.report(), comparing.candidate, await candidates.clear()) == (None, None, None)
    assert children() <= before
    assert list(tmp_path.iterdir()) == []
