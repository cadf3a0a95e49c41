"""One request per invocation over the guarded exchange; a failure before it is NOT_SENT, afterwards LOST."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import httpx2

from kblockd.domain import canonical
from kblockd.domain.answer import Numbers
from kblockd.upstream.adapter import AdapterContext, AdapterFault, Exchange, Outcome, Sent, ToolCall, ToolDescription
from kblockd_http.classify import MISSING, HttpAnswer, at, media_type, outcome, poll_outcome, read_outcome
from kblockd_http.request import NotSendable, Request, build
from kblockd_http.settings import DefinitionDocument, Settings, Template, ToolSettings

Json = Any

_CODES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (httpx2.TimeoutException, "UPSTREAM_TIMEOUT"),
    (httpx2.ConnectError, "CONNECT_FAILED"),
    (httpx2.LocalProtocolError, "REQUEST_NOT_SENDABLE"),
    (httpx2.TransportError, "CONNECTION_LOST"),
)


class HttpAdapter:
    """Implements ``kblockd.upstream.adapter.Adapter``."""

    def __init__(self, context: AdapterContext) -> None:
        settings: Settings = context.settings
        self._settings = settings
        self._context = context
        url = httpx2.URL(context.url)
        if url.query:
            raise ValueError("url must not carry a query; name query arguments in settings.tools")
        self._base = url.raw_path
        self._definitions = {name: tool.model_dump(mode="json") for name, tool in settings.tools.items()}

    async def describe(self, tool: str) -> ToolDescription:
        """The request template with the configured meaning of its answers, and the definition document."""
        configured = self._settings.tools.get(tool)
        if configured is None:
            raise AdapterFault("TOOL_UNKNOWN", f"settings.tools of upstream {self._context.upstream} has no {tool}")
        definition: dict[str, Json] = {"name": tool, "request": self._definitions[tool]}
        if self._settings.document is None:
            return ToolDescription(tool, "", definition)
        document = await self._document(self._settings.document)
        definition["document"] = part = at(document, configured.definition)
        if part is MISSING:
            raise AdapterFault("TOOL_UNKNOWN", f"the definition document has nothing at {configured.definition}")
        version = at(document, self._settings.document.version)
        return ToolDescription(tool, version if isinstance(version, str) else "", definition)

    async def read(self, call: ToolCall) -> Outcome:
        """A tool without effect."""
        return await self._call(call, read_outcome)

    async def invoke(self, call: ToolCall) -> Outcome:
        """The effect: one request."""
        return await self._call(call, outcome)

    async def lookup(self, call: ToolCall) -> Outcome:
        """A read tool that looks for an earlier call's effect."""
        return await self._call(call, read_outcome)

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        """``tools.NAME.poll``; without it the work cannot be polled, and nothing is sent."""
        tool = self._settings.tools.get(call.tool)
        if tool is None or tool.poll is None:
            return Outcome(Sent.NOT_SENT, code="POLL_NOT_CONFIGURED", detail=f"settings.tools.{call.tool} has no poll")
        answer = await self._exchange(tool.poll, call, operation)
        return answer if isinstance(answer, Outcome) else poll_outcome(tool, operation, answer)

    async def cancel(self, operation: str, call: ToolCall) -> Outcome:
        """``tools.NAME.cancel``; its answer proves nothing about the effect."""
        tool = self._settings.tools.get(call.tool)
        if tool is None or tool.cancel is None:
            detail = f"settings.tools.{call.tool} has no cancel"
            return Outcome(Sent.NOT_SENT, code="CANCEL_NOT_CONFIGURED", detail=detail)
        answer = await self._exchange(tool.cancel, call, operation)
        return (
            answer
            if isinstance(answer, Outcome)
            else outcome(ToolSettings(path=tool.cancel.path, accepted_statuses=()), answer)
        )

    async def close(self) -> None:
        """Holds nothing between calls."""

    async def _call(self, call: ToolCall, classify: Callable[[ToolSettings, HttpAnswer], Outcome]) -> Outcome:
        tool = self._settings.tools.get(call.tool)
        if tool is None:
            detail = f"settings.tools of upstream {self._context.upstream} has no {call.tool}"
            return Outcome(Sent.NOT_SENT, code="TOOL_UNKNOWN", detail=detail)
        answer = await self._exchange(tool, call, None)
        return answer if isinstance(answer, Outcome) else classify(tool, answer)

    async def _exchange(self, template: Template, call: ToolCall, operation: str | None) -> HttpAnswer | Outcome:
        """The complete answer, or the outcome if there was none."""
        try:
            request = build(self._base, template, call, operation)
        except (NotSendable, canonical.NotCanonical) as refused:
            code = refused.code if isinstance(refused, NotSendable) else "ARGUMENT_NOT_SENDABLE"
            return Outcome(Sent.NOT_SENT, code=code, detail=str(refused))
        exchange = self._context.exchange(call.deadline)
        exchange.mark()
        try:
            return await self._answer(exchange, request, call.numbers)
        except httpx2.HTTPError as error:
            sent = Sent.NOT_SENT if exchange.bytes_written == 0 else Sent.LOST
            return Outcome(sent, code=exchange.tampered or _code(error), detail=f"{type(error).__name__}: {error}")
        finally:
            await exchange.close()

    async def _answer(self, exchange: Exchange, request: Request, numbers: Numbers = "refuse") -> HttpAnswer:
        reply = await exchange.send(request.method, request.target, request.headers, request.content)
        names = self._settings.request_ids
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers} if names else {}
        ids = {name: headers[header.lower()] for name, header in names.items() if header.lower() in headers}
        return HttpAnswer(reply.status, reply.body, ids, media_type(reply.headers), numbers)

    async def _document(self, document: DefinitionDocument) -> Json:
        exchange = self._context.exchange(math.inf)
        request = Request("GET", document.path.encode(), ((b"Accept", b"application/json"),), b"")
        try:
            answer = await self._answer(exchange, request)
        except httpx2.HTTPError as error:
            raise AdapterFault(exchange.tampered or _code(error), f"{document.path}: {error}") from None
        finally:
            await exchange.close()
        if answer.status != 200:
            raise AdapterFault(f"HTTP_{answer.status}", f"{document.path} answered {answer.status}")
        try:
            return canonical.parse(answer.body, max_bytes=len(answer.body))
        except canonical.NotCanonical as error:
            raise AdapterFault("DEFINITION_NOT_CANONICAL", f"{document.path}: {error}") from None


def _code(error: Exception) -> str:
    return next((code for kind, code in _CODES if isinstance(error, kind)), "CONNECTION_LOST")
