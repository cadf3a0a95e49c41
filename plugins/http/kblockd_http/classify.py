"""From a complete HTTP answer to an outcome. What an error proves is the contract's to say and the core's to judge.

An error is ANSWERED with its facts; a 5xx, 407 and 408 are LOST, since whoever sends them may speak for a tool that has
acted or still acts (HTP-08, UPS-04, UPS-05).
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
from kblockd_http.settings import Progress, Tool

Json = Any

MISSING: Final = object()
_NOT_THE_TOOL: Final = frozenset({407, 408})
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,63}/[a-z0-9!#$&^_.+-]{1,63}")


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer: status, decoded body, the identifiers that its headers carried, and its media type (lower
    case, without parameters).

    ``numbers``: what becomes of those that no double holds exactly (``Call.numbers``).
    """

    status: int
    body: bytes
    request_ids: Mapping[str, str]
    media_type: str = ""
    numbers: Numbers = "refuse"

    @property
    def facts(self) -> Facts:
        """It came on the connection of its request, and a connection carries one request at a time."""
        return Facts(answers_request=True, form="body", status=self.status, media_type=self.media_type)


def outcome(tool: Tool, answer: Answer) -> Outcome:
    """What the answer to a call says."""
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
    """What the answer to a poll says: ACCEPTED while the work goes on. One that says nothing of it is LOST."""
    if answer.status < 400 and (read := _read(answer)).sent is Sent.ANSWERED:
        goes_on = _goes_on(tool.progress, tool, answer.status, read.output)
        if goes_on is None:
            detail = read.detail or "the answer does not say whether the work goes on"
            return replace(read, sent=Sent.LOST, code=read.code or "ANSWER_INCOMPLETE", detail=detail)
        if goes_on:
            return replace(read, sent=Sent.ACCEPTED, operation=operation)
    return outcome(tool.model_copy(update={"accepted_statuses": ()}), answer)


def media_type(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """Lower case, without parameters; empty where none is said, or more than one."""
    said = [value for name, value in headers if name == b"content-type"]
    found = said[0].decode("latin-1").partition(";")[0].strip().lower() if len(said) == 1 else ""
    return found if _MEDIA_TYPE.fullmatch(found) else ""


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


def _error(answer: Answer) -> Outcome:
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
        unreadable=None,  # the status says what it says, whatever stands in the body
    )


def _read(answer: Answer) -> Outcome:
    """The body as strict JSON. What is not one whole JSON text is LOST (UPS-13). A whole one stays an answer (C26), and
    says what in it cannot be kept."""
    found = Outcome(
        Sent.ANSWERED,
        raw_sha256=hashlib.sha256(answer.body).hexdigest(),
        request_ids=dict(answer.request_ids),
        facts=answer.facts,
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
        working = replace(read.facts, at_work=True)
        detail = "accepted, but no operation is named"
        return replace(read, sent=Sent.LOST, code="OPERATION_MISSING", detail=detail, facts=working)
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


def _goes_on(progress: Progress | None, tool: Tool, status: int, output: Json) -> bool | None:
    """None where nothing stands at the place that says it, or null (unless the configuration names null)."""
    if progress is None:
        return status in tool.accepted_statuses
    found = at(output, progress.pointer)
    if found is MISSING:
        return None
    return any(_same(found, value) for value in progress.running) or (None if found is None else False)
