"""The MCP adapter: describes tools, sends each call once, and reports its end as an ``Outcome``."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

import httpx2

from kblockd.admission.offload import offload, size_of
from kblockd.upstream.adapter import AdapterContext, AdapterFault, Exchange, Outcome, Sent, ToolCall, ToolDescription
from kblockd_mcp import classify, listing, request
from kblockd_mcp.answers import RpcAnswer
from kblockd_mcp.request import NotPossible
from kblockd_mcp.session import Session
from kblockd_mcp.settings import HANDSHAKE, McpSettings
from kblockd_mcp.wire import SessionWire

# Invalid params (an unknown tool among them), and of 2026-07-28 a header mismatch and an unsupported version.
_CONTRADICTIONS: Final = frozenset({-32602, -32020, -32022})
_FIRST_IDS: Final = 2**30  # keeps all ids below 2**31, the limit of some servers
_T = TypeVar("_T")
_Work = Callable[[Session], Awaitable[_T]]


class McpPlugin:
    """Implements ``kblockd.upstream.adapter.AdapterPlugin``."""

    api_version: Literal[2] = 2
    settings_model: type[Any] = McpSettings

    def open(self, context: AdapterContext) -> McpAdapter:
        """An adapter for one upstream; nothing is connected yet."""
        return McpAdapter(context)


class McpAdapter:
    """Implements ``kblockd.upstream.adapter.Adapter`` for one upstream.

    It caches two things and drops both when in doubt: the server's protocol revision, and the tools' definitions (for
    output schemas and mirrored headers, never for pins).

    The requests of one exchange are numbered from a random ``first_id``, so that an answer to another exchange,
    delivered by a load balancer or an event store, is not mistaken for the expected one.
    """

    def __init__(
        self,
        context: AdapterContext,
        monotonic: Callable[[], float] = time.monotonic,
        first_id: Callable[[], int] = lambda: 1 + secrets.randbelow(_FIRST_IDS),
    ) -> None:
        self._context = context
        self._url = httpx2.URL(context.url)
        self._settings: McpSettings = context.settings
        self._monotonic = monotonic
        self._first_id = first_id
        self._modern: bool | None = None
        self._tools: dict[str, listing.ListedTool] = {}

    async def describe(self, tool: str) -> ToolDescription:
        """From a fresh, uncached ``tools/list``; raises ``AdapterFault``. R017, R018, R032, MCP-13."""
        ends = self._monotonic() + self._settings.describe_seconds
        exchange = self._context.exchange(ends)

        async def work(session: Session) -> ToolDescription:
            return await self._described(session, tool)

        try:
            async with asyncio.timeout(self._settings.describe_seconds):
                return await self._within(self._wire(exchange, {}, ends), work)
        except NotPossible as error:
            raise AdapterFault(error.code, str(error)) from None
        except TimeoutError:
            seconds = self._settings.describe_seconds
            raise AdapterFault("UPSTREAM_TIMEOUT", f"no tool list within {seconds} s") from None
        except Exception as error:  # a defect here
            raise AdapterFault("ADAPTER_FAILED", f"{type(error).__name__}: {error}"[:512]) from None
        finally:
            await _closed(exchange)

    async def invoke(self, call: ToolCall) -> Outcome:
        """One POST of ``tools/call``, never a second (R176, R188); never raises."""
        return await self._call(call, reading=False)

    async def _call(self, call: ToolCall, *, reading: bool) -> Outcome:
        exchange = self._context.exchange(call.deadline)
        try:
            outgoing = request.build(call)
            wire = self._wire(exchange, request.authorization(call.credential), call.deadline)
            return await self._once(call, outgoing, exchange, wire, reading=reading)
        except NotPossible as error:
            # The call would have been the next request, so everything written so far came before it.
            exchange.mark()
            return Outcome(Sent.NOT_SENT, code=error.code, detail=classify.cut(str(error)))
        finally:
            await _closed(exchange)

    async def read(self, call: ToolCall) -> Outcome:
        """As ``invoke``; the contract asserts that the tool only reads."""
        return await self._call(call, reading=True)

    async def lookup(self, call: ToolCall) -> Outcome:
        """As ``invoke``; the contract asserts that the tool only reads."""
        return await self._call(call, reading=True)

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        """MCP tasks are not supported: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def cancel(self, operation: str, call: ToolCall) -> Outcome:
        """MCP tasks are not supported: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def close(self) -> None:
        """Nothing is open between calls."""

    def _wire(self, exchange: Exchange, headers: Mapping[str, str], ends: float) -> SessionWire:
        ids = itertools.count(self._first_id())
        return SessionWire(exchange, self._url, headers, lambda: ends - self._monotonic(), ids)

    async def _described(self, session: Session, tool: str) -> ToolDescription:
        listed = await listing.fetch(session.ask)
        self._tools.pop(tool, None)
        fresh = self._tools[tool] = listing.tool(listed, tool, modern=session.modern)
        if session.modern and not session.server_version:
            await session.discover()
        return ToolDescription(tool, session.server_version[:128], dict(fresh.definition))

    async def _once(
        self, call: ToolCall, outgoing: request.Outgoing, exchange: Exchange, wire: SessionWire, *, reading: bool
    ) -> Outcome:
        """The deadline here bounds only the steps before the call; the exchange itself ends the call."""

        async def work(session: Session) -> Outcome:
            tool = await self._tool(session, call.tool)
            headers = {**outgoing.headers, **tool.headers(outgoing.params["arguments"])}
            limit.reschedule(None)
            answer = await session.call(outgoing.params, headers, call.numbers)
            self._drop_cache_if_contradicted(answer)
            known = replace(
                _evidence(session, answer, exchange.bytes_written, tool), numbers=call.numbers, reading=reading
            )
            return await offload(size_of(answer.result), classify.outcome, known)

        limit = asyncio.timeout(call.deadline - self._monotonic())
        try:
            async with limit:
                return await self._within(wire, work)
        except NotPossible as error:
            if wire.called:
                return Outcome(Sent.LOST, code=error.code, detail=classify.cut(str(error)))
            raise
        except Exception as error:  # time-out or a defect here: the outcome depends on what was sent, not on the error
            if limit.expired() and not wire.called:
                raise NotPossible("UPSTREAM_TIMEOUT", "the deadline passed before the call could be sent") from None
            detail = f"{type(error).__name__}: {error}"
            if not wire.called:
                raise NotPossible("ADAPTER_FAILED", detail) from None
            return Outcome(Sent.LOST, code="ADAPTER_FAILED", detail=classify.cut(detail))

    async def _within(self, wire: SessionWire, work: _Work[_T]) -> _T:
        """Runs ``work`` in a session of the server's protocol revision; forgets the revision on a protocol error."""
        try:
            session = Session(wire, modern=await self._speaks_modern(wire))
            try:
                if not session.modern:
                    await session.handshake()
                self._modern = session.modern
                return await work(session)
            finally:
                await session.close()
        except NotPossible as error:
            if error.code.startswith("PROTOCOL_"):
                self._modern = None
            raise

    async def _speaks_modern(self, wire: SessionWire) -> bool:
        """By the setting, the cache, or one ``server/discover``; raises ``NotPossible`` when nobody answers."""
        if self._settings.protocol != "auto":
            return self._settings.protocol != HANDSHAKE
        if self._modern is not None:
            return self._modern
        try:
            await Session(wire, modern=True).discover()
        except NotPossible as error:
            if not error.code.startswith("PROTOCOL_"):
                raise
            return False
        return True

    async def _tool(self, session: Session, name: str) -> listing.ListedTool:
        """The cached definition, or a listing before the call, whose mirrored headers must be right the first time."""
        if name not in self._tools:
            self._tools[name] = listing.tool(await listing.fetch(session.ask), name, modern=session.modern)
        return self._tools[name]

    def _drop_cache_if_contradicted(self, answer: RpcAnswer) -> None:
        """Costs the next call a request or two."""
        if answer.error is not None and answer.error.code in _CONTRADICTIONS:
            self._tools.clear()
            self._modern = None


async def _closed(exchange: Exchange) -> None:
    """A failure to close must not replace the outcome."""
    with contextlib.suppress(Exception):
        await exchange.close()


def _evidence(
    session: Session, answer: RpcAnswer, bytes_written: int, tool: listing.ListedTool
) -> classify.CallEvidence:
    return classify.CallEvidence(
        bytes_written=bytes_written,
        call=session.wire.call,
        result=answer.result,
        error=answer.error,
        own=answer.own,
        call_id=str(session.request_id),
        session_id=session.session_id,
        definition=tool.definition,
        unreadable=answer.unreadable,
    )
