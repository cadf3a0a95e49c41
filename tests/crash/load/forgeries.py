"""A sound history made unsound, each time by one lie: what the checker is for must be what it finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.crash.load.checker import CLOSED, NEEDS_APPROVAL, NEVER_ALLOWED, NOTHING_HAPPENED, Fault
from tests.crash.load.history import Given, History, Leaf

Forge = Callable[[History], History]


@dataclass(frozen=True, slots=True)
class Forgery:
    """``beside``: faults that the same lie shows as well."""

    fault: Fault
    forge: Forge
    beside: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return self.forge.__name__


def _answer(history: History, kind: str) -> Given:
    return next(one for one in history.given if one.kind == kind)


def _completed(history: History) -> Given:
    """One that was neither approved nor held: its lies show nowhere else."""
    held = {leaf.execution for leaf in history.leaves if leaf.type == "execution.held"}
    found = (one for one in history.given if one.kind == "Completed" and not one.approval)
    return next(one for one in found if one.execution not in held)


def _line(history: History, event: str, order: str) -> dict[str, Any]:
    return next(line for line in history.log if (line["event"], line["order_id"]) == (event, order))


def _leaf(history: History, type_: str, execution: str) -> Leaf:
    return next(leaf for leaf in history.leaves if (leaf.type, leaf.execution) == (type_, execution))


def _logged(history: History, line: dict[str, Any]) -> History:
    return replace(history, log=[*history.log, line])


def _told(history: History, one: Given) -> History:
    return replace(history, given=[*history.given, one])


def _without(history: History, leaf: Leaf) -> History:
    seen = {index: data for index, data in history.seen.items() if index != leaf.index}
    return replace(history, leaves=[one for one in history.leaves if one is not leaf], seen=seen)


def _with(history: History, leaf: Leaf, **body: Any) -> History:
    """A copy at the end, with other things in its body."""
    document = {**leaf.document, "body": {**leaf.body, **body}}
    added = Leaf(len(history.leaves), json.dumps(document).encode(), document, leaf.aux)
    return replace(history, leaves=[*history.leaves, added])


def a_second_effect(history: History) -> History:
    return _logged(history, _line(history, "effect", _completed(history).order))


def an_effect_under_another_key(history: History) -> History:
    return _logged(history, {**_line(history, "effect", _completed(history).order), "key": "another"})


def a_second_call(history: History) -> History:
    return _logged(history, _line(history, "call", _completed(history).order))


def a_call_before_its_marker(history: History) -> History:
    call = _line(history, "call", _completed(history).order)
    return replace(history, log=[{**line, "at": line["at"] - 60} if line is call else line for line in history.log])


def a_lost_result(history: History) -> History:
    return _without(history, _leaf(history, "result.sealed", _completed(history).execution))


def a_lost_receipt(history: History) -> History:
    return _without(history, _leaf(history, "receipt", _completed(history).execution))


def another_result_on_record(history: History) -> History:
    sealed = _leaf(history, "result.sealed", _completed(history).execution)
    other = replace(sealed, aux=sealed.aux + b" ")
    return replace(history, leaves=[other if leaf is sealed else leaf for leaf in history.leaves])


def a_lost_refusal(history: History) -> History:
    return _without(history, _leaf(history, "execution.rejected", _answer(history, "Denied").execution))


def a_lost_denial(history: History) -> History:
    approval = next(approval for approval, verdict in history.decided if verdict == "deny")
    decided = (leaf for leaf in history.leaves if leaf.type == "approval.decided")
    return _without(history, next(leaf for leaf in decided if leaf.body["approval_id"] == approval))


def a_resolution_of_another_kind(history: History) -> History:
    ((execution, _), *others) = history.resolved
    return replace(history, resolved=[(execution, "unprovable"), *others])


def a_success_without_effect(history: History) -> History:
    effect = _line(history, "effect", _completed(history).order)
    return replace(history, log=[line for line in history.log if line is not effect])


def a_success_with_another_amount(history: History) -> History:
    effect = _line(history, "effect", _completed(history).order)
    return replace(history, log=[{**line, "amount": "1.00"} if line is effect else line for line in history.log])


def an_effect_after_nothing_happened(history: History) -> History:
    called = {line["order_id"] for line in history.calls}
    ended = (one.order for one in history.given if one.result_class in NOTHING_HAPPENED and one.kind == "UpstreamError")
    order = next(one for one in ended if one in called)
    return _logged(history, {**_line(history, "call", order), "event": "effect", "amount": "100.00"})


def an_effect_of_what_was_denied(history: History) -> History:
    return _logged(history, {**history.effects[0], "order_id": _answer(history, "Denied").order, "key": "denied"})


def not_executed_after_the_effect(history: History) -> History:
    effect = history.effects[0]
    told = next(one for one in history.given if one.order == effect["order_id"])
    late = replace(told, kind="Aborted", reason="TARGET_BUSY", executed=False, asked_at=effect["at"] + 1)
    return _told(history, replace(late, refused=True, retryable=True))


def an_approval_used_twice(history: History) -> History:
    claims = (leaf for leaf in history.leaves if leaf.type == "execution.claimed" and leaf.body["approval_id"])
    claim = next(claims)
    return _with(history, replace(claim, document={**claim.document, "execution": "exe_other"}), again=False)


def an_approval_after_the_effect(history: History) -> History:
    operations = {
        leaf.execution: leaf.body["operation"] for leaf in history.leaves if leaf.type == "execution.proposed"
    }
    sent = (leaf.execution for leaf in history.leaves if leaf.type == "execution.sent")
    approved = next(one for one in sent if operations[one] == NEEDS_APPROVAL)
    decided = _leaf(history, "approval.decided", approved)
    return _with(_without(history, decided), decided)


def an_effect_of_what_had_expired(history: History) -> History:
    claim = _leaf(history, "execution.claimed", _completed(history).execution)
    return _with(history, replace(claim, document={**claim.document, "type": "execution.expired"}))


def an_effect_that_policy_denies(history: History) -> History:
    proposed = _leaf(history, "execution.proposed", _completed(history).execution)
    body = {**proposed.body, "operation": NEVER_ALLOWED}
    denied = replace(proposed, document={**proposed.document, "body": body})
    return replace(history, leaves=[denied if leaf is proposed else leaf for leaf in history.leaves])


def another_result_for_a_repeat(history: History) -> History:
    one = _completed(history)
    return _told(history, replace(one, state="failed"))


def another_execution_for_a_repeat(history: History) -> History:
    one = _answer(history, "Denied")
    other = next(given for given in history.given if given.kind == "Denied" and given.execution != one.execution)
    return _told(history, replace(one, execution=other.execution, approval=other.approval))


def in_progress_after_the_end(history: History) -> History:
    one = _completed(history)
    return _told(history, replace(one, kind="InProgress", asked_at=one.got_at + 1e6, executed=True))


def a_second_seal(history: History) -> History:
    return _with(history, _leaf(history, "result.sealed", _completed(history).execution))


def a_receipt_of_another(history: History) -> History:
    """On record as it was given, and yet not what was signed."""
    one = _completed(history)
    other = next(given for given in history.given if given.kind == "Completed" and given.execution != one.execution)
    told = [
        replace(given, receipt=other.receipt) if given.execution == one.execution else given for given in history.given
    ]
    receipt = _leaf(history, "receipt", one.execution)
    leaves = [replace(leaf, aux=other.receipt) if leaf is receipt else leaf for leaf in history.leaves]
    return replace(history, given=told, leaves=leaves)


def a_class_that_was_not_signed(history: History) -> History:
    one = _completed(history)
    told = [
        replace(given, result_class="completed_unverified") if given.execution == one.execution else given
        for given in history.given
    ]
    return replace(history, given=told)


def a_record_that_was_another(history: History) -> History:
    (index, data), *_ = history.seen.items()
    return replace(history, seen={**history.seen, index: data + b" "})


def a_caller_left_alone(history: History) -> History:
    order = _completed(history).order
    return replace(history, given=[one for one in history.given if one.order != order or one.kind not in CLOSED])


def a_refusal_for_good(history: History) -> History:
    one = _completed(history)
    return _told(history, replace(one, kind="Internal", refused=True, executed=None, retryable=True))


FORGERIES = (
    Forgery(Fault.DOUBLE_EFFECT, a_second_effect, (Fault.FALSE_SUCCESS,)),
    Forgery(Fault.DOUBLE_EFFECT, an_effect_under_another_key, (Fault.FALSE_SUCCESS,)),
    Forgery(Fault.UNMARKED_EFFECT, a_second_call),
    Forgery(Fault.UNMARKED_EFFECT, a_call_before_its_marker),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, a_lost_result),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, a_lost_receipt),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, another_result_on_record),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, a_lost_refusal),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, a_lost_denial),
    Forgery(Fault.LOST_ACKNOWLEDGEMENT, a_resolution_of_another_kind),
    Forgery(Fault.FALSE_SUCCESS, a_success_without_effect),
    Forgery(Fault.FALSE_SUCCESS, a_success_with_another_amount),
    Forgery(Fault.FALSE_NOTHING, an_effect_after_nothing_happened),
    Forgery(Fault.FALSE_NOTHING, an_effect_of_what_was_denied),
    Forgery(Fault.FALSE_NOTHING, not_executed_after_the_effect),
    Forgery(Fault.REUSED_APPROVAL, an_approval_used_twice),
    Forgery(Fault.UNAUTHORISED_EFFECT, an_approval_after_the_effect),
    Forgery(Fault.UNAUTHORISED_EFFECT, an_effect_of_what_had_expired),
    Forgery(Fault.UNAUTHORISED_EFFECT, an_effect_that_policy_denies),
    Forgery(Fault.CHANGED_RESULT, another_result_for_a_repeat),
    Forgery(Fault.CHANGED_RESULT, another_execution_for_a_repeat),
    Forgery(Fault.CHANGED_RESULT, in_progress_after_the_end),
    Forgery(Fault.CHANGED_RESULT, a_second_seal),
    Forgery(Fault.BAD_RECEIPT, a_receipt_of_another),
    Forgery(Fault.BAD_RECEIPT, a_class_that_was_not_signed),
    Forgery(Fault.REWRITTEN_RECORD, a_record_that_was_another),
    Forgery(Fault.NO_ANSWER, a_caller_left_alone),
    Forgery(Fault.UNEXPECTED_REFUSAL, a_refusal_for_good),
)
