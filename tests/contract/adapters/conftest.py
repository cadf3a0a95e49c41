"""The contract is held on the loop that the daemon runs on; the other tests of this layer run on the standard one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """See pytest-asyncio."""
    return {"uvloop": uvloop.new_event_loop}
