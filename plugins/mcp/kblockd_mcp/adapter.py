"""The adapter: describe reads, a call is sent once, and its end is told as an ``Outcome``."""

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
from kblockd.upstream.adapter import AdapterContext, AdapterFault, Call, Exchange, Outcome, Sent, ToolDescription
from kblockd_mcp import classify, listing, request
from kblockd_mcp.answers import Answer
from kblockd_mcp.request import NotPossible
from kblockd_mcp.session import Session
from kblockd_mcp.settings import HANDSHAKE, McpSettings
from kblockd_mcp.wire import Wire

# Invalid params (an unknown tool among them), and of 2026-07-28 a header mismatch and an unsupported version.
_CONTRADICTIONS: Final = frozenset({-32602, -32020, -32022})
_FIRST_IDS: Final = 2**30  # the last one is still below 2**31, which is all that some servers can read
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

    It remembers two things, both to be asked for again after any doubt: which revision the server speaks, and the
    definitions of the tools (for output schemas and mirrored headers; never for pins).

    The requests of one exchange are numbered from ``first_id``, a random one, so that an answer that belongs to another
    exchange, brought by a balancer or a store of events, is not taken for the answer that is waited for.
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
        self._tools: dict[str, listing.Tool] = {}

    async def describe(self, tool: str) -> ToolDescription:
        """A fresh ``tools/list``, no cache of any kind; raises ``AdapterFault``. R017, R018, R032, MCP-13."""
        ends = self._monotonic() + self._settings.describe_seconds
        exchange = self._context.exchange(ends)

        async def work(opened: Session) -> ToolDescription:
            return await self._described(opened, tool)

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

    async def invoke(self, call: Call) -> Outcome:
        """One POST of ``tools/call``, never a second one (R176, R188); never raises."""
        return await self._call(call, reading=False)

    async def _call(self, call: Call, *, reading: bool) -> Outcome:
        exchange = self._context.exchange(call.deadline)
        try:
            outgoing = request.build(call)
            wire = self._wire(exchange, request.authorization(call.credential), call.deadline)
            return await self._once(call, outgoing, exchange, wire, reading=reading)
        except NotPossible as error:
            # From here the call would have been the next request: all that was written came before it.
            exchange.mark()
            return Outcome(Sent.NOT_SENT, code=error.code, detail=classify.cut(str(error)))
        finally:
            await _closed(exchange)

    async def read(self, call: Call) -> Outcome:
        """The same exchange; that the tool only reads is the contract's word."""
        return await self._call(call, reading=True)

    async def lookup(self, call: Call) -> Outcome:
        """The same exchange; that the tool only reads is the contract's word."""
        return await self._call(call, reading=True)

    async def poll(self, operation: str, call: Call) -> Outcome:
        """Tasks are not spoken: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def cancel(self, operation: str, call: Call) -> Outcome:
        """Tasks are not spoken: nothing is sent."""
        return Outcome(Sent.NOT_SENT, code="UNSUPPORTED", operation=operation)

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    def _wire(self, exchange: Exchange, headers: Mapping[str, str], ends: float) -> Wire:
        ids = itertools.count(self._first_id())
        return Wire(exchange, self._url, headers, lambda: ends - self._monotonic(), ids)

    async def _described(self, opened: Session, tool: str) -> ToolDescription:
        listed = await listing.fetch(opened.ask)
        self._tools.pop(tool, None)
        found = self._tools[tool] = listing.tool(listed, tool, modern=opened.modern)
        if opened.modern and not opened.server_version:
            await opened.discover()
        return ToolDescription(tool, opened.server_version[:128], dict(found.definition))

    async def _once(
        self, call: Call, outgoing: request.Outgoing, exchange: Exchange, wire: Wire, *, reading: bool
    ) -> Outcome:
        """The deadline cuts what comes before the call; the call itself ends when the exchange ends it."""

        async def work(opened: Session) -> Outcome:
            tool = await self._tool(opened, call.tool)
            headers = {**outgoing.headers, **tool.headers(outgoing.params["arguments"])}
            limit.reschedule(None)
            answer = await opened.call(outgoing.params, headers, call.numbers)
            self._doubt(answer)
            known = replace(
                _evidence(opened, answer, exchange.bytes_written, tool), numbers=call.numbers, reading=reading
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
        except Exception as error:  # the limit's, or a defect here: what was sent decides, not the exception
            if limit.expired() and not wire.called:
                raise NotPossible("UPSTREAM_TIMEOUT", "the deadline passed before the call could be sent") from None
            detail = f"{type(error).__name__}: {error}"
            if not wire.called:
                raise NotPossible("ADAPTER_FAILED", detail) from None
            return Outcome(Sent.LOST, code="ADAPTER_FAILED", detail=classify.cut(detail))

    async def _within(self, wire: Wire, work: _Work[_T]) -> _T:
        """Runs ``work`` in a session of the revision that the server speaks, which is forgotten when that fails."""
        try:
            opened = Session(wire, modern=await self._speaks_modern(wire))
            try:
                if not opened.modern:
                    await opened.handshake()
                self._modern = opened.modern
                return await work(opened)
            finally:
                await opened.close()
        except NotPossible as error:
            if error.code.startswith("PROTOCOL_"):
                self._modern = None
            raise

    async def _speaks_modern(self, wire: Wire) -> bool:
        """The setting, what was learnt, or one ``server/discover``; raises ``NotPossible`` when nobody answers."""
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

    async def _tool(self, opened: Session, name: str) -> listing.Tool:
        """The remembered definition, or one listing before the call: mirrored headers must be right at once."""
        if name not in self._tools:
            self._tools[name] = listing.tool(await listing.fetch(opened.ask), name, modern=opened.modern)
        return self._tools[name]

    def _doubt(self, answer: Answer) -> None:
        """Forgets what the server may just have contradicted; that costs the next call a question or two."""
        if answer.error is not None and answer.error.code in _CONTRADICTIONS:
            self._tools.clear()
            self._modern = None


async def _closed(exchange: Exchange) -> None:
    """A connection that cannot even be closed takes no outcome away."""
    with contextlib.suppress(Exception):
        await exchange.close()


def _evidence(opened: Session, answer: Answer, bytes_written: int, tool: listing.Tool) -> classify.Evidence:
    return classify.Evidence(
        bytes_written=bytes_written,
        call=opened.wire.call,
        result=answer.result,
        error=answer.error,
        own=answer.own,
        call_id=str(opened.request_id),
        session_id=opened.session_id,
        definition=tool.definition,
        unreadable=answer.unreadable,
    )
