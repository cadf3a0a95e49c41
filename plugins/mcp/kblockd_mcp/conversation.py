"""Taps on both message streams of a session: what was asked, and the answer before the SDK's models see it.

Outgoing: the trace context in ``_meta`` is the action's, whatever a propagator of this process put there, and baggage
does not go on. Incoming: the raw result is kept, because the SDK drops or refuses what its models do not know, and an
answer that belongs to no request resolves the one that waits, because the SDK would wait for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from kblockd_mcp.wire import CALL

TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")
STRAY_ANSWER: Final = -32000


class Conversation:
    """The latest request of one session, which has one request at a time, and its raw answer."""

    def __init__(self, trace: Mapping[str, str]) -> None:
        self._trace = {name: value for name, value in trace.items() if name in TRACE_KEYS[:2] and value}
        self.request_id: RequestId | None = None
        self.call_id: RequestId | None = None
        self.result: dict[str, Any] | None = None
        self.error: ErrorData | None = None

    def asked(self, request: JSONRPCRequest) -> None:
        """Notes a request on its way out and puts the action's trace context into a call."""
        self.request_id, self.result, self.error = request.id, None, None
        params = request.params
        if params is None:
            return
        meta = {name: value for name, value in params.get("_meta", {}).items() if name not in TRACE_KEYS}
        if request.method == CALL:
            self.call_id = request.id
            meta |= self._trace
        if meta:
            params["_meta"] = meta
        else:
            params.pop("_meta", None)

    def answered(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Notes an answer on its way in; one under another id becomes an error of the request that waits."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCError) and message.id in (None, self.request_id):
            message.id = self.request_id
            self.error = message.error
        elif isinstance(message, JSONRPCResponse) and str(message.id) == str(self.request_id):
            self.result = message.result
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and self.result is None and self.error is None:
            if self.request_id is None:
                return item
            self.error = ErrorData(code=STRAY_ANSWER, message="the answer carries another request's id")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=self.request_id, error=self.error))
        return item


class _Tap:
    """What both directions share: the stream below, closed as it would be."""

    def __init__(self, stream: Any, conversation: Conversation) -> None:
        self._stream = stream
        self._conversation = conversation

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.aclose()
        return None


class Outgoing(_Tap):
    """The SDK's write stream."""

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._conversation.asked(item.message)
        await self._stream.send(item)


class Incoming(_Tap):
    """The SDK's read stream."""

    @property
    def last_context(self) -> Any:
        """The sender's context variables, which the SDK's dispatcher asks for."""
        return self._stream.last_context

    async def receive(self) -> SessionMessage | Exception:
        return self._conversation.answered(await self._stream.receive())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._conversation.answered(await self._stream.__anext__())
