"""One suite for every ``PolicyEngine``: an engine joins by a branch in ``engine_with``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from kblockd.policy.engine import PolicyEngine
from kblockd.policy.pool import EmbeddedLimits
from tests.contract.policy.support import PATIENT, running

EngineWith = Callable[..., Awaitable[PolicyEngine]]


@pytest.fixture(params=["embedded"])
async def engine_with(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineWith]:
    """``await engine_with(files, evaluate_seconds=...)``: an engine with that policy in force."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            texts: Mapping[str, str], *, evaluate_seconds: float = PATIENT.evaluate_seconds
        ) -> PolicyEngine:
            limits = EmbeddedLimits(evaluate_seconds=evaluate_seconds, load_seconds=PATIENT.load_seconds)
            return await stack.enter_async_context(running(tmp_path / "policy", texts, limits))

        yield start
