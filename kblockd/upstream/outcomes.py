"""Makes a plugin's answer safe to store: checks types, scrubs the credential, bounds every field.

A defect in an answer does not prove that nothing happened: an outcome that cannot be understood becomes LOST, and one
whose output cannot be stored keeps its class (C26, CAN-05, CAN-07). A read is the opposite: an answer that cannot be
stored is evidence of nothing, so the read has failed (``evidence``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kblockd.domain import canonical
from kblockd.domain.answer import AnswerFault, Unreadable, first_fault
from kblockd.domain.ledger import identifier
from kblockd.upstream.adapter import Facts, Outcome, Sent
from kblockd.upstream.scope import Scope
from kblockd.upstream.scrub import Scrubber

Json = Any

DETAIL_BYTES: Final = 2048
_REQUEST_IDS: Final = 16
_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,63}/[a-z0-9!#$&^_.+-]{1,63}")
_FORMS: Final = ("", "body", "tool_result", "rpc_error")
_NOTHING: Final = Facts()
_AT_WORK: Final = Facts(at_work=True)


def failed(scope: Scope, code: str, detail: str) -> Outcome:
    """For a plugin that raised or was too slow: NOT_SENT if the call's exchanges prove it, else LOST.

    Seals the call first, so that the proof stays true.
    """
    scope.seal()
    if scope.proves_not_sent():
        return Outcome(Sent.NOT_SENT, code=code, detail=bounded(f"{detail}; no byte of the call was sent"))
    return lost(code, detail)


def lost(code: str, detail: str, facts: Facts = _NOTHING) -> Outcome:
    """LOST whatever the exchanges prove: there was an answer, or there may have been one."""
    return Outcome(Sent.LOST, code=code, detail=bounded(f"{detail}; the upstream may have acted"), facts=facts)


def classified(answer: object, scope: Scope, scrubber: Scrubber) -> Outcome:
    """The answer with every field but ``output`` safe to store; never raises for any answer."""
    if type(answer) is not Outcome or not isinstance(answer.sent, Sent):  # subclasses are reserved for the core
        return failed(scope, "PLUGIN_ANSWER_INVALID", f"the plugin returned a {type(answer).__name__}")
    try:
        outcome = _clean(answer, scrubber)
    except Exception as error:  # a field of a wrong type
        return failed(scope, "PLUGIN_ANSWER_INVALID", f"a field of the outcome is invalid: {type(error).__name__}")
    if outcome.sent is Sent.NOT_SENT and scope.contradicts_not_sent():
        return lost("PLUGIN_CONTRADICTED", "the plugin reported not sent, but its exchanges do not prove it")
    if outcome.sent is Sent.ACCEPTED and not outcome.operation:
        return lost("OPERATION_MISSING", "accepted without an operation to poll", _AT_WORK)
    if outcome.sent is Sent.ACCEPTED and outcome.operation != answer.operation:
        return lost("OPERATION_UNUSABLE", "the operation is not a short printable identifier", _AT_WORK)
    return outcome


def storable(outcome: Outcome, scrubber: Scrubber, max_output_bytes: int) -> Outcome:
    """The outcome with a storable output, or without output and with the reason; pure, linear in the output."""
    if outcome.unreadable is not None:  # reported by the plugin, whose code says what it means for the call
        return replace(outcome, output=None, code=outcome.code or "RESULT_NOT_STORABLE")
    if fault := first_fault(outcome.output):
        return _without_output(outcome, "RESULT_NOT_STORABLE", _unreadable(fault, scrubber))
    try:
        output = scrubber.value(outcome.output)
        size = len(canonical.canonical(output))
    except canonical.NotCanonical:  # unreachable as long as first_fault is complete; refused if it ever happens
        return _without_output(outcome, "RESULT_NOT_STORABLE", Unreadable(AnswerFault.NOT_JSON))
    if size > max_output_bytes:
        sizes = f"{size} bytes of output exceed the limit of {max_output_bytes}"
        return _without_output(outcome, "RESPONSE_TOO_LARGE", Unreadable(AnswerFault.SIZE), sizes)
    return outcome if output is outcome.output else replace(outcome, output=output)


def evidence(outcome: Outcome) -> Outcome:
    """For reads, look-ups and polls: an answer that cannot be stored becomes LOST.

    Done only here, so that no stage can hand null to a policy in its place (UPS-10, UPS-11, UPS-18). An error answer
    stays an error: nobody reads its body.
    """
    if outcome.unreadable is None or outcome.is_error or outcome.sent is not Sent.ANSWERED:
        return outcome
    return replace(outcome, sent=Sent.LOST)


def bounded(detail: str, limit: int = DETAIL_BYTES) -> str:
    """At most ``limit`` bytes of UTF-8; lone surrogates become question marks."""
    octets = detail.encode("utf-8", "replace")
    if len(octets) <= limit:
        return octets.decode()
    return octets[: limit - 3].decode("utf-8", "ignore") + "…"


def sentence(error: BaseException) -> str:
    """Type and message of an exception that may itself be hostile."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _clean(answer: Outcome, scrubber: Scrubber) -> Outcome:
    code = answer.code if answer.code == "" or _CODE.fullmatch(answer.code) else "PLUGIN_CODE_INVALID"
    return Outcome(
        answer.sent,
        answer.output,
        is_error=bool(answer.is_error),
        operation=None if answer.operation is None else _identifier(answer.operation, scrubber),
        code=code,
        detail=bounded(scrubber.text(answer.detail)),
        raw_sha256=answer.raw_sha256 if _DIGEST.fullmatch(answer.raw_sha256) else "",
        request_ids=_request_ids(answer.request_ids, scrubber),
        facts=_facts(answer.facts),
        unreadable=None if answer.unreadable is None else _unreadable(answer.unreadable, scrubber),
    )


def _facts(given: Facts) -> Facts:
    """The facts unchanged, or the defaults if any is invalid: facts that are not understood prove nothing."""
    status, rpc_code = given.status, given.rpc_code
    sound = (
        type(given.answers_request) is bool
        and type(given.at_work) is bool
        and given.form in _FORMS
        and (status is None or (type(status) is int and 100 <= status <= 999))
        and (rpc_code is None or (type(rpc_code) is int and abs(rpc_code) < 2**53))
        and (given.media_type == "" or bool(_MEDIA_TYPE.fullmatch(given.media_type)))
    )
    return given if sound else Facts(at_work=bool(given.at_work))


def _request_ids(given: Mapping[str, str], scrubber: Scrubber) -> dict[str, str]:
    pairs = list(given.items())[:_REQUEST_IDS]
    return {_identifier(name, scrubber): _identifier(value, scrubber) for name, value in pairs}


def _identifier(text: str, scrubber: Scrubber) -> str:
    return identifier(scrubber.text(text))


def _unreadable(given: Unreadable, scrubber: Scrubber) -> Unreadable:
    """Raises ``TypeError``, ``ValueError`` or ``AttributeError`` for a malformed one."""
    return Unreadable(AnswerFault(given.fault), scrubber.text(given.place))


def _without_output(outcome: Outcome, code: str, unreadable: Unreadable, why: str = "") -> Outcome:
    """Keeps the class; the digest still identifies the output."""
    original = f"{outcome.code}: {outcome.detail}" if outcome.code else outcome.detail
    return replace(
        outcome,
        output=None,
        code=code,
        detail=bounded("; ".join(filter(None, (why or str(unreadable), original)))),
        unreadable=unreadable,
        raw_sha256=outcome.raw_sha256 or _raw_digest(outcome.output),
    )


def _raw_digest(output: Json) -> str:
    """Over a lenient JSON text: evidence of the output, not a canonical digest."""
    try:
        text = json.dumps(output, sort_keys=True, default=repr)
    except (ValueError, TypeError, RecursionError):
        return ""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
