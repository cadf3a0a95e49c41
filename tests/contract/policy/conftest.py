"""One suite for every ``PolicyEngine``: an engine joins by a name in ``kind_of``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.embedded.pool import EmbeddedLimits
from tests.contract.policy.remote import remote_running
from tests.contract.policy.support import PATIENT, Kind, forget_others, kind_of

EngineWith = Callable[..., Awaitable[PolicyEngine]]


@pytest.fixture(params=["embedded", "opa"])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """The embedded engine, and a real OPA under supervision."""
    with kind_of(request.param) as found:
        yield found


@pytest.fixture(params=["embedded", "opa", "remote"])
async def engine_with(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineWith]:
    """``await engine_with(files, evaluate_seconds=...)``: an engine with that policy in force, of each sort."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            texts: Mapping[str, str], *, evaluate_seconds: float = PATIENT.evaluate_seconds
        ) -> PolicyEngine:
            if request.param == "remote":
                return await stack.enter_async_context(remote_running(tmp_path / "policy", texts, evaluate_seconds))
            kind = stack.enter_context(kind_of(request.param))
            limits = EmbeddedLimits(evaluate_seconds=evaluate_seconds, load_seconds=PATIENT.load_seconds)
            return await stack.enter_async_context(kind.running(tmp_path / "policy", texts, limits))

        yield start


@pytest.fixture(autouse=True)
def _only_our_children() -> None:
    forget_others()
