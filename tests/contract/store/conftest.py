"""The suite runs once for each implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kblockd.store.protocol import Store
from tests.contract.store.backends import ALL, Backend


@pytest.fixture(params=ALL, ids=lambda kind: kind.__name__)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    kind: type[Backend] = request.param
    return kind(tmp_path)


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    opened = await backend.open()
    yield opened
    backend.release()
    await opened.close()
