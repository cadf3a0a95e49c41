"""The adapter contract once more, over MCP's handshake revision 2025-11-25."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.adapters import test_adapter_contract as contract
from tests.contract.adapters.mcp_fixture import open_revision
from tests.contract.adapters.subject import Subject
from tests.upstreams.mcp_app import HANDSHAKE


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[Subject]:
    async with open_revision(tmp_path, HANDSHAKE) as opened:
        yield opened


globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})
