"""The answer to one JSON-RPC request: its result or its error, as the server sent it.

The SDK's types validate the message; the result stays raw, because models drop or refuse unknown members. The SDK's
parser rounds long decimals and silently takes the last of two equal keys, so the answer to a call is decoded by the
daemon's parser, which reports a part that cannot be stored (UPS-10).
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

from kblockd.domain.answer import AnswerFault, NotJson, Numbers, Twice, Unreadable, decode, place

STRAY_ANSWER: Final = CONNECTION_CLOSED


@dataclass(frozen=True, slots=True)
class RpcAnswer:
    """A result or an error; neither if there was no answer. ``own``: it came under the id of this request.
    ``unreadable``: the part of the answer that makes its result unusable, if any."""

    result: dict[str, Any] | None = None
    error: ErrorData | None = None
    own: bool = False
    unreadable: Unreadable | None = None


def failed(code: int, message: str, unreadable: Unreadable | None = None) -> RpcAnswer:
    """A synthetic error in place of an invalid answer; never ``own``."""
    return RpcAnswer(error=ErrorData(code=code, message=message), unreadable=unreadable)


def read(data: bytes | str, request_id: int, numbers: Numbers | None) -> RpcAnswer | JSONRPCRequest | None:
    """The answer to that request, a request from the server, or None for a notification.

    A session has one request at a time, so an answer under another id, or an error without an id, ends the wait but
    does not count as this request's answer. Nor does a message that is both a result and an error (UPS-03).
    ``numbers`` as in ``Call`` for the answer to a call, None for messages that are not evidence.
    """
    try:
        message, says_both = _message(data, numbers)
    except ValidationError as error:
        why = error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        return failed(PARSE_ERROR, f"the answer is not a JSON-RPC message: {why}")
    except NotJson as error:
        return failed(PARSE_ERROR, f"the answer is {error}", error.unreadable)
    if not isinstance(message, JSONRPCResponse | JSONRPCError):
        return message if isinstance(message, JSONRPCRequest) else None
    if says_both:
        return failed(INVALID_REQUEST, "the answer is both a result and an error")
    if isinstance(message, JSONRPCError) and message.id is None:
        return RpcAnswer(error=message.error)
    if str(message.id) != str(request_id):
        return failed(STRAY_ANSWER, "the answer carries another request's id")
    if isinstance(message, JSONRPCResponse):
        return RpcAnswer(result=message.result, own=True)
    return RpcAnswer(error=message.error, own=True)


def _message(data: bytes | str, numbers: Numbers | None) -> tuple[Any, bool]:
    """The message, and whether it is both a result and an error, which the SDK's types do not detect.

    Raises ``ValidationError`` or ``NotJson``; the latter also for a duplicate key in the message or its result, because
    it is unclear which one the server means.
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
    """Null counts as absent, as some servers send it."""
    return members.get("result") is not None and members.get("error") is not None


def _refuse_twice(value: dict[str, Any]) -> None:
    if isinstance(value, Twice):
        duplicate = Unreadable(AnswerFault.TWICE, place([value.key]))
        raise NotJson(f"ambiguous: {duplicate}", duplicate)
