"""What came back to one JSON-RPC request: its result or its error, as the server sent it.

The message is judged by the SDK's own types; the result stays raw, because models drop or refuse what they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

STRAY_ANSWER: Final = CONNECTION_CLOSED


@dataclass(frozen=True, slots=True)
class Answer:
    """One of both, or neither when nothing was said."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None


def failed(code: int, message: str) -> Answer:
    """An error that nobody sent: in the place of an answer that is none."""
    return Answer(error=ErrorData(code=code, message=message))


def read(data: bytes | str, request_id: int) -> Answer | JSONRPCRequest | None:
    """The answer to that request, the server's own request, or None for a notification.

    An answer under another id belongs to nobody else, since a session has one request at a time: it is an error of
    this one.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return failed(PARSE_ERROR, f"the answer is no JSON-RPC message: {found}")
    if isinstance(message, JSONRPCResponse) and str(message.id) == str(request_id):
        return Answer(result=message.result)
    if isinstance(message, JSONRPCError) and (message.id is None or str(message.id) == str(request_id)):
        return Answer(error=message.error)
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        return failed(STRAY_ANSWER, "the answer carries another request's id")
    return message if isinstance(message, JSONRPCRequest) else None
