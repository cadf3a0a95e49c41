"""From a complete HTTP answer to an outcome. A status proves only what the configuration says that it proves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kblockd.domain import canonical
from kblockd.domain.answer import NotJson, Numbers, decode, first_fault
from kblockd.upstream.adapter import Outcome, Sent
from kblockd_http.settings import Progress, Tool

Json = Any

MISSING: Final = object()
# Intermediaries speak here, not the upstream: whether it acted is unknown (HTP-08).
_NOT_THE_UPSTREAM: Final = frozenset({408, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer: status, decoded body, and the identifiers that its headers carried.

    ``numbers``: what becomes of those that no double holds exactly (``Call.numbers``).
    """

    status: int
    body: bytes
    request_ids: Mapping[str, str]
    numbers: Numbers = "refuse"


def outcome(tool: Tool, answer: Answer) -> Outcome:
    """What the answer to a call says."""
    if answer.status >= 400:
        return _error(tool, answer)
    read = _read(answer)
    if read.sent is Sent.LOST:
        return read
    if answer.status in tool.accepted_statuses:
        return _accepted(tool, read)
    if tool.success is None:
        return read
    if read.unreadable is not None:  # what it says at the pointer may be what cannot be kept (UPS-12)
        return replace(read, sent=Sent.LOST, detail=f"{read.detail}; whether it worked is not known")
    return _judged(read, at(read.output, tool.success.pointer), tool.success.equals)


def asked(tool: Tool, answer: Answer) -> Outcome:
    """What the answer to a read says. Of an effect a 204 can be all that there is to say, of a question it is nothing:
    no content is not the same as null."""
    found = outcome(tool, answer)
    if found.sent is Sent.ANSWERED and not found.is_error and not answer.body.strip():
        return replace(found, sent=Sent.LOST, code="ANSWER_EMPTY", detail="the answer to a read has no content")
    return found


def polled(tool: Tool, operation: str, answer: Answer) -> Outcome:
    """What the answer to a poll says: ACCEPTED while the work goes on."""
    if answer.status < 400:
        read = _read(answer)
        if read.sent is Sent.ANSWERED and _goes_on(tool.progress, tool, answer.status, read.output):
            return replace(read, sent=Sent.ACCEPTED, operation=operation)
    return outcome(tool.model_copy(update={"accepted_statuses": ()}), answer)


def at(value: Json, pointer: str) -> Json:
    """RFC 6901; ``MISSING`` when nothing stands there."""
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return MISSING
    return value


def _error(tool: Tool, answer: Answer) -> Outcome:
    code = f"HTTP_{answer.status}"
    read = _read(answer)
    output = read.output if read.sent is Sent.ANSWERED else None
    if answer.status in tool.not_executed_statuses:
        sent = Sent.REJECTED
    elif answer.status in _NOT_THE_UPSTREAM:
        sent = Sent.LOST
    else:
        sent = Sent.ANSWERED
    return replace(
        read,
        sent=sent,
        output=output,
        is_error=True,
        code=code,
        detail=f"the upstream answered {answer.status}",
        unreadable=None,  # the status says what it says, whatever stands in the body
    )


def _read(answer: Answer) -> Outcome:
    """The body as strict JSON. What is not one whole JSON text is LOST (UPS-13). A whole one stays an answer (C26), and
    says what in it cannot be kept."""
    found = Outcome(
        Sent.ANSWERED, raw_sha256=hashlib.sha256(answer.body).hexdigest(), request_ids=dict(answer.request_ids)
    )
    if not answer.body.strip():
        return found
    try:
        output = decode(answer.body, answer.numbers)
    except NotJson as error:
        lost = replace(found, sent=Sent.LOST, code="ANSWER_NOT_JSON", detail=str(error))
        return replace(lost, unreadable=error.unreadable)
    if fault := first_fault(output):
        return replace(found, code="RESULT_NOT_STORABLE", detail=str(fault), unreadable=fault)
    return replace(found, output=output)


def _accepted(tool: Tool, read: Outcome) -> Outcome:
    operation = at(read.output, tool.operation) if tool.operation is not None else MISSING
    if isinstance(operation, int) and not isinstance(operation, bool):
        operation = str(operation)
    if not isinstance(operation, str) or not operation:
        return replace(read, sent=Sent.LOST, code="OPERATION_MISSING", detail="accepted, but no operation is named")
    return replace(read, sent=Sent.ACCEPTED, operation=operation)


def _judged(read: Outcome, found: Json, wanted: Json) -> Outcome:
    if found is MISSING:
        return replace(
            read, sent=Sent.LOST, code="ANSWER_INCOMPLETE", detail="the answer does not say whether it worked"
        )
    if _same(found, wanted):
        return read
    return replace(read, is_error=True, code="REPORTED_FAILURE", detail="the answer says that it did not work")


def _same(found: Json, wanted: Json) -> bool:
    """JSON equality: true is not 1."""
    return canonical.canonical(found) == canonical.canonical(wanted)


def _goes_on(progress: Progress | None, tool: Tool, status: int, output: Json) -> bool:
    if progress is None:
        return status in tool.accepted_statuses
    found = at(output, progress.pointer)
    return found is not MISSING and any(_same(found, value) for value in progress.running)
