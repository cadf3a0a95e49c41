"""A plugin whose methods are what a test gives it, behind the real wrapper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from kblockd.upstream.adapter import Outcome, ToolCall, ToolDescription
from kblockd.upstream.credentials import Credential
from kblockd.upstream.wrapper import CallLimits, GuardedAdapter

Behaviour = Callable[[ToolCall], Awaitable[Any]]


class Plugin:
    """Implements ``Adapter``; every method behaves alike."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.calls: list[ToolCall] = []

    async def describe(self, tool: str) -> ToolDescription:
        answer: ToolDescription = await self.behaviour(call())
        return answer

    async def invoke(self, call: ToolCall) -> Outcome:
        self.calls.append(call)
        answer: Outcome = await self.behaviour(call)
        return answer

    read = lookup = invoke

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        return await self.invoke(call)

    cancel = poll

    async def close(self) -> None:
        """Nothing."""


def call(seconds: float = 20.0) -> ToolCall:
    """A call that ends ``seconds`` from now."""
    return ToolCall("refund", {"order_id": "1"}, "", "none", "", time.monotonic() + seconds, None, {})


def guarded(
    behaviour: Behaviour,
    *,
    ref: str = "none",
    slots: int = 4,
    late_seconds: float = 5.0,
    linger_seconds: float = 0.0,
    max_output_bytes: int = 1 << 20,
) -> GuardedAdapter:
    """The wrapper around a plugin that behaves so."""
    return GuardedAdapter(
        Plugin(behaviour),
        credential=Credential(ref),
        slots=asyncio.Semaphore(slots),
        limits=CallLimits(
            max_output_bytes, late_seconds=late_seconds, linger_seconds=linger_seconds, cancel_seconds=5.0
        ),
    )
