"""Blocking work in a thread, which cannot be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def completed(work: Callable[..., object], *arguments: Any) -> None:
    """Runs ``work`` to its end even if the caller is cancelled, so that the caller can undo it."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
