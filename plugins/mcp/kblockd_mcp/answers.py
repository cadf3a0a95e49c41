"""What came back to one JSON-RPC request: its result or its error, as the server sent it.

The message is judged by the SDK's own types; the result stays raw, because models drop or refuse what they do not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

STRAY_ANSWER: Final = CONNECTION_CLOSED


@dataclass(frozen=True, slots=True)
class Answer:
    """One of both, or neither when nothing was said. ``own``: the server said it under the id of this request."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None
    own: bool = False


def failed(code: int, message: str) -> Answer:
    """An error that nobody sent: in the place of an answer that is none, and never ``own``."""
    return Answer(error=ErrorData(code=code, message=message))


def read(data: bytes | str, request_id: int) -> Answer | JSONRPCRequest | None:
    """The answer to that request, the server's own request, or None for a notification.

    An answer under another id, or an error without one, belongs to nobody else, since a session has one request at a
    time: it ends the wait for this one, but is no answer to it. Nor is a message that is both a result and an error
    (UPS-03).
    """
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return failed(PARSE_ERROR, f"the answer is no JSON-RPC message: {found}")
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        return message if isinstance(message, JSONRPCRequest) else None
    if _says_both(data):
        return failed(INVALID_REQUEST, "the answer is both a result and an error")
    if isinstance(message, JSONRPCError) and message.id is None:
        return Answer(error=message.error)
    if str(message.id) != str(request_id):
        return failed(STRAY_ANSWER, "the answer carries another request's id")
    if isinstance(message, JSONRPCResponse):
        return Answer(result=message.result, own=True)
    return Answer(error=message.error, own=True)


def _says_both(data: bytes | str) -> bool:
    """The SDK's types ignore the one that they do not look for; null is how some servers leave one out."""
    members = from_json(data)
    return members.get("result") is not None and members.get("error") is not None
