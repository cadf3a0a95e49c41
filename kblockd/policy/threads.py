"""Blocking work in a thread, which nobody can stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def completed(work: Callable[..., object], *arguments: Any) -> None:
    """Who is cancelled meanwhile waits for the end of the work and can undo it; work that has not begun is begun."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
