"""What came back to one JSON-RPC request: its result or its error, as the server sent it.

The message is judged by the SDK's own types; the result stays raw, because models drop or refuse what they do not know.
The SDK's parser rounds long decimals and takes the last of two equal keys without a word, so the answer to a call is
decoded by the daemon's, which says what in it cannot be kept (UPS-10).
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

from kblockd.domain.answer import Fault, NotJson, Numbers, Twice, Unreadable, decode, place

STRAY_ANSWER: Final = CONNECTION_CLOSED


@dataclass(frozen=True, slots=True)
class Answer:
    """One of both, or neither when nothing was said. ``unreadable``: why there is no result, where that has a place."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None
    unreadable: Unreadable | None = None


def failed(code: int, message: str, unreadable: Unreadable | None = None) -> Answer:
    """An error that nobody sent: in the place of an answer that is none."""
    return Answer(error=ErrorData(code=code, message=message), unreadable=unreadable)


def read(data: bytes | str, request_id: int, numbers: Numbers | None) -> Answer | JSONRPCRequest | None:
    """The answer to that request, the server's own request, or None for a notification.

    An answer under another id belongs to nobody else, since a session has one request at a time: it is an error of
    this one. ``numbers`` as in ``Call`` for the answer to a call, None for what is no evidence.
    """
    try:
        message = _message(data, numbers)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return failed(PARSE_ERROR, f"the answer is no JSON-RPC message: {found}")
    except NotJson as error:
        return failed(PARSE_ERROR, f"the answer is {error}", error.unreadable)
    if isinstance(message, JSONRPCResponse) and str(message.id) == str(request_id):
        return Answer(result=message.result)
    if isinstance(message, JSONRPCError) and (message.id is None or str(message.id) == str(request_id)):
        return Answer(error=message.error)
    if isinstance(message, JSONRPCResponse | JSONRPCError):
        return failed(STRAY_ANSWER, "the answer carries another request's id")
    return message if isinstance(message, JSONRPCRequest) else None


def _message(data: bytes | str, numbers: Numbers | None) -> Any:
    """Raises ``ValidationError`` or ``NotJson``; the latter also where a key that frames the message comes twice: which
    of both the server means is a guess."""
    if numbers is None:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    message = decode(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"), numbers)
    if isinstance(message, dict):
        if isinstance(message.get("result"), dict):
            _refuse_twice(message["result"])
        _refuse_twice(message)
    return jsonrpc_message_adapter.validate_python(message, by_name=False)


def _refuse_twice(value: dict[str, Any]) -> None:
    if isinstance(value, Twice):
        found = Unreadable(Fault.TWICE, place([value.key]))
        raise NotJson(f"ambiguous: {found}", found)
