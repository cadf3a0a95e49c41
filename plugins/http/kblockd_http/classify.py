"""From a complete HTTP answer to an outcome. The contract declares and the core judges what an error proves.

An error is ANSWERED with its facts; a 5xx, 407 or 408 is LOST, because its sender may be in front of a tool that has
acted or is still acting (HTP-08, UPS-04, UPS-05).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kblockd.domain import canonical
from kblockd.domain.answer import NotJson, Numbers, decode, first_fault
from kblockd.upstream.adapter import Facts, Outcome, Sent
from kblockd_http.settings import PollProgress, ToolSettings

Json = Any

MISSING: Final = object()
_NOT_THE_TOOL: Final = frozenset({407, 408})
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,63}/[a-z0-9!#$&^_.+-]{1,63}")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A complete answer: status, decoded body, identifiers from its headers, and media type (lower case, without
    parameters).

    ``numbers``: how to treat numbers that no double holds exactly (``Call.numbers``).
    """

    status: int
    body: bytes
    request_ids: Mapping[str, str]
    media_type: str = ""
    numbers: Numbers = "refuse"

    @property
    def facts(self) -> Facts:
        """Always the answer to this request: it came on the same connection, which carries one request at a time."""
        return Facts(answers_request=True, form="body", status=self.status, media_type=self.media_type)


def outcome(tool: ToolSettings, answer: HttpAnswer) -> Outcome:
    """The outcome of a call, by its answer."""
    if answer.status >= 400:
        return _error(answer)
    read = _read(answer)
    accepted = answer.status in tool.accepted_statuses
    if read.sent is Sent.LOST:
        return replace(read, facts=replace(read.facts, at_work=accepted))
    if accepted:
        return _accepted(tool, read)
    if tool.success is None:
        return read
    if read.unreadable is not None:  # the unreadable part may be the value at the pointer (UPS-12)
        return replace(read, sent=Sent.LOST, detail=f"{read.detail}; whether it worked is unknown")
    return _judged(read, at(read.output, tool.success.pointer), tool.success.equals)


def read_outcome(tool: ToolSettings, answer: HttpAnswer) -> Outcome:
    """The outcome of a read, by its answer. An empty answer (204) can report an effect, but not a read's result:
    no content is not null."""
    read = outcome(tool, answer)
    if read.sent is Sent.ANSWERED and not read.is_error and not answer.body.strip():
        return replace(read, sent=Sent.LOST, code="ANSWER_EMPTY", detail="the answer to a read has no content")
    return read


def poll_outcome(tool: ToolSettings, operation: str, answer: HttpAnswer) -> Outcome:
    """The outcome of a poll, by its answer: ACCEPTED while the work continues, LOST if the answer does not say."""
    if answer.status < 400 and (read := _read(answer)).sent is Sent.ANSWERED:
        continues = _in_progress(tool.progress, tool, answer.status, read.output)
        if continues is None:
            detail = read.detail or "the answer does not say whether the work continues"
            return replace(read, sent=Sent.LOST, code=read.code or "ANSWER_INCOMPLETE", detail=detail)
        if continues:
            return replace(read, sent=Sent.ACCEPTED, operation=operation)
    return outcome(tool.model_copy(update={"accepted_statuses": ()}), answer)


def media_type(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Lower case, without parameters; empty unless there is exactly one valid Content-Type."""
    values = [value for name, value in headers if name == b"content-type"]
    media = values[0].decode("latin-1").partition(";")[0].strip().lower() if len(values) == 1 else ""
    return media if _MEDIA_TYPE.fullmatch(media) else ""


def at(value: Json, pointer: str) -> Json:
    """The value at a pointer (RFC 6901), or ``MISSING``."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def _error(answer: HttpAnswer) -> Outcome:
    code = f"HTTP_{answer.status}"
    read = _read(answer)
    output = read.output if read.sent is Sent.ANSWERED else None
    sent = Sent.LOST if answer.status >= 500 or answer.status in _NOT_THE_TOOL else Sent.ANSWERED
    return replace(
        read,
        sent=sent,
        output=output,
        is_error=True,
        code=code,
        detail=f"the upstream answered {answer.status}",
        unreadable=None,  # the status is conclusive, whatever the body contains
    )


def _read(answer: HttpAnswer) -> Outcome:
    """The body as strict JSON. Anything but one complete JSON text is LOST (UPS-13). A complete one stays an answer
    (C26) and names a part that cannot be stored."""
    if not answer.body.strip():
        return _answered(answer, None)
    try:
        output = decode(answer.body, answer.numbers)
    except NotJson as error:
        lost = replace(_answered(answer, None), sent=Sent.LOST, code="ANSWER_NOT_JSON", detail=str(error))
        return replace(lost, unreadable=error.unreadable)
    if fault := first_fault(output):
        refused = _answered(answer, None)
        return replace(refused, code="RESULT_NOT_STORABLE", detail=str(fault), unreadable=fault)
    return _answered(answer, output)


def _answered(answer: HttpAnswer, output: Json) -> Outcome:
    return Outcome(
        Sent.ANSWERED,
        output,
        raw_sha256=hashlib.sha256(answer.body).hexdigest(),
        request_ids=dict(answer.request_ids),
        facts=answer.facts,
    )


def _accepted(tool: ToolSettings, read: Outcome) -> Outcome:
    operation = at(read.output, tool.operation) if tool.operation is not None else MISSING
    if isinstance(operation, int) and not isinstance(operation, bool):
        operation = str(operation)
    if not isinstance(operation, str) or not operation:
        working = replace(read.facts, at_work=True)
        detail = "accepted, but the answer names no operation"
        return replace(read, sent=Sent.LOST, code="OPERATION_MISSING", detail=detail, facts=working)
    return replace(read, sent=Sent.ACCEPTED, operation=operation)


def _judged(read: Outcome, actual: Json, expected: Json) -> Outcome:
    if actual is MISSING:
        return replace(
            read, sent=Sent.LOST, code="ANSWER_INCOMPLETE", detail="the answer does not say whether it worked"
        )
    if _equal(actual, expected):
        return read
    return replace(read, is_error=True, code="REPORTED_FAILURE", detail="the answer says that it did not work")


def _equal(actual: Json, expected: Json) -> bool:
    """JSON equality: true is not 1."""
    return canonical.canonical(actual) == canonical.canonical(expected)


def _in_progress(progress: PollProgress | None, tool: ToolSettings, status: int, output: Json) -> bool | None:
    """None if the value that says it is missing, or null where the configuration does not name null."""
    if progress is None:
        return status in tool.accepted_statuses
    state = at(output, progress.pointer)
    if state is MISSING:
        return None
    return any(_equal(state, value) for value in progress.running) or (None if state is None else False)
