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

from kblockd.domain.answer import Fault, NotJson, Numbers, Twice, Unreadable, decode, place

STRAY_ANSWER: Final = CONNECTION_CLOSED


@dataclass(frozen=True, slots=True)
class Answer:
    """One of both, or neither when nothing was said. ``own``: the server said it under the id of this request.
    ``unreadable``: why there is no result, where that has a place."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None
    own: bool = False
    unreadable: Unreadable | None = None


def failed(code: int, message: str, unreadable: Unreadable | None = None) -> Answer:
    """An error that nobody sent: in the place of an answer that is none, and never ``own``."""
    return Answer(error=ErrorData(code=code, message=message), unreadable=unreadable)


def read(data: bytes | str, request_id: int, numbers: Numbers | None) -> Answer | JSONRPCRequest | None:
    """The answer to that request, the server's own request, or None for a notification.

    An answer under another id, or an error without one, belongs to nobody else, since a session has one request at a
    time: it ends the wait for this one, but is no answer to it. Nor is a message that is both a result and an error
    (UPS-03). ``numbers`` as in ``Call`` for the answer to a call, None for what is no evidence.
    """
    try:
        message, says_both = _message(data, numbers)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return failed(PARSE_ERROR, f"the answer is no JSON-RPC message: {found}")
    except NotJson as error:
        return failed(PARSE_ERROR, f"the answer is {error}", error.unreadable)
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        return message if isinstance(message, JSONRPCRequest) else None
    if says_both:
        return failed(INVALID_REQUEST, "the answer is both a result and an error")
    if isinstance(message, JSONRPCError) and message.id is None:
        return Answer(error=message.error)
    if str(message.id) != str(request_id):
        return failed(STRAY_ANSWER, "the answer carries another request's id")
    if isinstance(message, JSONRPCResponse):
        return Answer(result=message.result, own=True)
    return Answer(error=message.error, own=True)


def _message(data: bytes | str, numbers: Numbers | None) -> tuple[Any, bool]:
    """The message, and whether it is both a result and an error, which the SDK's types do not see.

    Raises ``ValidationError`` or ``NotJson``; the latter also where a key that frames the message comes twice: which
    of both the server means is a guess.
    """
    if numbers is None:
        return jsonrpc_message_adapter.validate_json(data, by_name=False), _says_both(from_json(data))
    members = decode(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"), numbers)
    if isinstance(members, dict):
        if isinstance(members.get("result"), dict):
            _refuse_twice(members["result"])
        _refuse_twice(members)
    return jsonrpc_message_adapter.validate_python(members, by_name=False), _says_both(members)


def _says_both(members: Any) -> bool:
    """Null is how some servers leave one out."""
    return members.get("result") is not None and members.get("error") is not None


def _refuse_twice(value: dict[str, Any]) -> None:
    if isinstance(value, Twice):
        found = Unreadable(Fault.TWICE, place([value.key]))
        raise NotJson(f"ambiguous: {found}", found)
