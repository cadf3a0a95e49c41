"""An adapter that does what no adapter may: blocks the loop, leaks, raises what ends programs, never ends itself.

The first word of the order says how ``invoke`` behaves, the setting ``closing`` how ``close`` does. What it does to the
world is a line in a file, so that a test can count. It stands for its own upstream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict

from kblockd.upstream.adapter import AdapterContext, Outcome, Sent, ToolCall, ToolDescription

BRIEF_SECONDS: Final = 1.0
LEAKED: Final = 50


class Settings(BaseModel):
    """``effects`` is the file; ``closing`` one of ``Closing``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    effects: str
    closing: str = "well"


class OwnCancellation(asyncio.CancelledError):
    """Looks like a cancellation to whoever does not look closely."""


class OwnEnd(BaseException):
    """No Exception, so that ``except Exception`` misses it."""


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _deaf() -> NoReturn:
    """Ignores each cancellation."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def _raising(error: BaseException) -> None:
    raise error


async def _leak(kind: Callable[[], Awaitable[None]]) -> None:
    _LEAKED.extend(asyncio.ensure_future(kind()) for _ in range(LEAKED))
    await asyncio.sleep(0)


async def _block(seconds: float) -> None:
    time.sleep(seconds)


async def _leave_a_bomb() -> None:
    async def burst() -> None:
        await asyncio.sleep(0.1)
        raise SystemExit(0)

    _LEAKED.append(asyncio.ensure_future(burst()))


_LEAKED: Final[list[Any]] = []
BEHAVIOURS: Final[Mapping[str, Callable[[], Awaitable[Any]]]] = {
    "well": lambda: asyncio.sleep(0),
    "brief": lambda: _block(BRIEF_SECONDS),
    "block": lambda: _block(3600),
    "leak": lambda: _leak(_for_ever),
    "litter": lambda: _leak(_deaf),
    "interrupt": lambda: _raising(KeyboardInterrupt()),
    "exit": lambda: _raising(SystemExit(0)),
    "cancel": lambda: _raising(OwnCancellation()),
    "own": lambda: _raising(OwnEnd()),
    "never": _for_ever,
    "deaf": _deaf,
    "bomb": _leave_a_bomb,
}


class StallingAdapter:
    """Implements ``kblockd.upstream.adapter.Adapter``; acts first, and misbehaves before it answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._effects = Path(settings.effects)

    async def describe(self, tool: str) -> ToolDescription:
        """The same for each."""
        return ToolDescription(tool, "1", {"name": tool})

    async def read(self, call: ToolCall) -> Outcome:
        """Every order is there and paid."""
        order = {"order_id": call.arguments["order_id"], "exists": True, "version": 1, "status": "paid"}
        return Outcome(Sent.ANSWERED, {**order, "amount": "100.00", "currency": "EUR", "refunded": "0.00"})

    async def invoke(self, call: ToolCall) -> Outcome:
        """One line, then whatever the order says."""
        order = call.arguments["order_id"]
        with self._effects.open("a") as file:
            file.write(order + "\n")
        await BEHAVIOURS[order.partition("-")[0]]()
        return Outcome(Sent.ANSWERED, {"ok": True})

    lookup = read

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        """Nothing is accepted here."""
        return Outcome(Sent.NOT_SENT)

    cancel = poll

    async def close(self) -> None:
        """As the settings say."""
        await BEHAVIOURS[self._settings.closing]()


class StallingPlugin:
    """Implements ``kblockd.upstream.adapter.AdapterPlugin``."""

    api_version: Literal[2] = 2
    settings_model: type[Any] = Settings

    def open(self, context: AdapterContext) -> StallingAdapter:
        """Nothing is connected."""
        return StallingAdapter(context.settings)


PLUGIN: Final = StallingPlugin()
