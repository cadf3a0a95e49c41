"""The adapter: describe reads, a call is sent once, and its end is told as an ``Outcome``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequest
from pydantic import ValidationError

from kblockd.domain import canonical
from kblockd.upstream.adapter import AdapterContext, AdapterFault, Call, Exchange, Outcome, Sent, ToolDescription
from kblockd_mcp import classify, listing, request, session
from kblockd_mcp.request import NotPossible
from kblockd_mcp.session import Session
from kblockd_mcp.settings import HANDSHAKE, McpSettings
from kblockd_mcp.wire import Wire

STALL_SECONDS: Final = 1.0
# The SDK's client logs session ids, whole messages and answers, the HTTP stack headers of answers (session ids again):
# none of it may reach a log, at no level.
_TALKATIVE: Final = ("client", "mcp.client", "mcp.shared", "httpcore2", "httpx2")
_T = TypeVar("_T")
_Work = Callable[[Session, bool], Awaitable[_T]]


class McpPlugin:
    """Implements ``kblockd.upstream.adapter.AdapterPlugin``."""

    api_version: Literal[1] = 1
    settings_model: type[Any] = McpSettings

    def open(self, context: AdapterContext) -> McpAdapter:
        """An adapter for one upstream; nothing is connected yet."""
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return McpAdapter(context)


class McpAdapter:
    """Implements ``kblockd.upstream.adapter.Adapter`` for one upstream.

    It remembers two things, both to be asked for again after any doubt: which revision the server speaks, and the
    definitions of the tools (for output schemas and mirrored headers; never for pins).
    """

    def __init__(self, context: AdapterContext, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._settings: McpSettings = context.settings
        self._monotonic = monotonic
        self._modern: bool | None = None
        self._tools: dict[str, listing.Tool] = {}

    async def describe(self, tool: str) -> ToolDescription:
        """A fresh ``tools/list``, no cache of any kind; raises ``AdapterFault``. R017, R018, R032, MCP-13."""
        seconds = self._settings.describe_seconds
        exchange = self._context.exchange(self._monotonic() + seconds)

        async def work(opened: Session, modern: bool) -> ToolDescription:
            return await self._described(opened, modern, tool)

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._within(exchange, Wire(exchange, {}), {}, work)
        except NotPossible as error:
            raise AdapterFault(error.code, str(error)) from None
        except Exception as error:  # the SDK's task groups may put an error of their own in place of the time-out
            if limit.expired():
                raise AdapterFault("UPSTREAM_TIMEOUT", f"no tool list within {seconds} s") from None
            raise AdapterFault("ADAPTER_FAILED", f"{type(error).__name__}: {error}"[:512]) from None
        finally:
            await _closed(exchange)

    async def invoke(self, call: Call) -> Outcome:
        """One POST of ``tools/call``, never a second one (R176, R188); never raises."""
        exchange = self._context.exchange(call.deadline)
        try:
            outgoing = request.build(call)
            wire = Wire(exchange, request.authorization(call.credential))
            return await self._once(call, outgoing, exchange, wire)
        except NotPossible as error:
            return Outcome(Sent.NOT_SENT, code=error.code, detail=classify.cut(str(error)))
        finally:
            await _closed(exchange)

    async def read(self, call: Call) -> Outcome:
        """The same exchange; that the tool only reads is the contract's word."""
        return await self.invoke(call)

    async def lookup(self, call: Call) -> Outcome:
        """The same exchange; that the tool only reads is the contract's word."""
        return await self.invoke(call)

    async def poll(self, operation: str, call: Call) -> Outcome:
        """Tasks are not spoken: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def cancel(self, operation: str, call: Call) -> Outcome:
        """Tasks are not spoken: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    async def _described(self, opened: Session, modern: bool, tool: str) -> ToolDescription:
        if modern:
            await session.discover(opened)
        listed = await listing.fetch(opened.ask)
        self._tools.pop(tool, None)
        found = self._tools[tool] = listing.tool(listed, tool, modern=modern)
        try:
            canonical.canonical(found.definition)
        except canonical.NotCanonical as error:
            raise NotPossible("DEFINITION_NOT_CANONICAL", f"{tool}: {error}") from None
        server = opened.sdk.server_info
        return ToolDescription(tool, server.version[:128] if server is not None else "", dict(found.definition))

    async def _once(self, call: Call, outgoing: request.Outgoing, exchange: Exchange, wire: Wire) -> Outcome:
        """The deadline cuts what comes before the call; the call itself ends when the exchange ends it."""

        async def work(opened: Session, modern: bool) -> Outcome:
            tool = await self._tool(opened, modern, call.tool)
            arguments = outgoing.request.params.arguments or {}
            wire.call_headers = {**outgoing.headers, **tool.headers(arguments)}
            limit.reschedule(None)
            await self._send(opened, outgoing.request, call.deadline)
            known = _evidence(opened, modern, call.tool, exchange.bytes_written, tool.definition)
            return self._told(classify.outcome(known))

        limit = asyncio.timeout(call.deadline - self._monotonic())
        try:
            async with limit:
                return await self._within(exchange, wire, call.trace, work)
        except NotPossible:
            raise
        except Exception as error:  # the SDK's, or a defect here: what was sent decides, not the exception
            if limit.expired() and wire.call is None:
                raise NotPossible("UPSTREAM_TIMEOUT", "the deadline passed before the call could be sent") from None
            sent = Sent.NOT_SENT if wire.call is None else Sent.LOST
            return Outcome(sent, code="ADAPTER_FAILED", detail=classify.cut(f"{type(error).__name__}: {error}"))

    async def _within(self, exchange: Exchange, wire: Wire, trace: Mapping[str, str], work: _Work[_T]) -> _T:
        """Opens a session in the revision that the server speaks, and forgets the revision when that fails."""
        modern = await self._speaks_modern(exchange, wire)

        async def opened(one: Session) -> _T:
            wire.resumable = not modern
            if modern:
                session.adopt_modern(one)
            else:
                await session.handshake(one)
            return await work(one, modern)

        try:
            found = await session.within(self._context, exchange, wire, trace, opened)
        except NotPossible as error:
            if error.code.startswith("PROTOCOL_"):
                self._modern = None
            raise
        self._modern = modern
        return found

    async def _speaks_modern(self, exchange: Exchange, wire: Wire) -> bool:
        """The setting, what was learnt, or one ``server/discover``; raises ``NotPossible`` when nobody answers."""
        if self._settings.protocol != "auto":
            return self._settings.protocol != HANDSHAKE
        if self._modern is not None:
            return self._modern
        try:
            await session.within(self._context, exchange, wire, {}, session.discover)
        except NotPossible as error:
            if not error.code.startswith("PROTOCOL_"):
                raise
            return False
        return True

    async def _tool(self, opened: Session, modern: bool, name: str) -> listing.Tool:
        """The remembered definition, or one listing before the call: mirrored headers must be right at once."""
        if name not in self._tools:
            self._tools[name] = listing.tool(await listing.fetch(opened.ask), name, modern=modern)
        return self._tools[name]

    async def _send(self, opened: Session, outgoing: CallToolRequest, deadline: float) -> None:
        """Returns when the call has ended, however it did. What it answered stands in the conversation.

        The SDK waits for ever for an answer that a finished stream did not bring, and sleeps as long as a server
        likes before it resumes a broken one; both end here.
        """
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        with anyio.CancelScope() as scope:

            def stalled(over: bool) -> None:
                left = 0.0 if over else deadline - self._monotonic()
                timers.append(loop.call_later(max(STALL_SECONDS, left), scope.cancel))

            opened.wire.on_stalled = stalled
            try:
                await opened.sdk.send_request(outgoing, session.RAW)
            except (MCPError, ValidationError, RuntimeError):
                pass  # the conversation holds the answer or the error
            finally:
                for timer in timers:
                    timer.cancel()

    def _told(self, outcome: Outcome) -> Outcome:
        """Forgets what the server has just contradicted."""
        if outcome.sent is Sent.REJECTED:
            self._tools.clear()
            self._modern = None
        return outcome


async def _closed(exchange: Exchange) -> None:
    """A connection that cannot even be closed takes no outcome away."""
    with contextlib.suppress(Exception):
        await exchange.close()


def _evidence(
    opened: Session, modern: bool, tool: str, bytes_written: int, definition: Mapping[str, Any]
) -> classify.Evidence:
    conversation, wire = opened.conversation, opened.wire
    return classify.Evidence(
        tool=tool,
        modern=modern,
        bytes_written=bytes_written,
        call=wire.call,
        failure=wire.failure,
        result=conversation.result,
        error=conversation.error,
        call_id=str(conversation.call_id if conversation.call_id is not None else ""),
        session_id=wire.session_id,
        definition=definition,
    )
