"""The outside judge of a history. It asks nothing of the daemon's own code, but for the auditor's stand-alone verifier.

Answers that anybody got are held against the provider's log, which counts what really happened, and against the
exported ledger. Each rule reports every case that breaks it, and counts the cases that it looked at: a rule that
looked at nothing has proved nothing.
"""

from __future__ import annotations

import base64
import datetime as dt
import enum
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kblockd.evidence import verify_offline
from tests.crash.load.history import Given, History, Leaf
from tests.crash.load.provider import AMOUNT

SEALED = ("Completed", "UpstreamError")
CLOSED = (*SEALED, "Denied")
NOTHING_HAPPENED = ("not_started", "failed_before_side_effect")
WITHOUT_EFFECT = ("execution.rejected", "execution.expired", "execution.cancelled")
NEEDS_APPROVAL = "payment.refund.create"
NEVER_ALLOWED = "account.close"


class Fault(enum.StrEnum):
    """What no history may hold."""

    DOUBLE_EFFECT = "a deed was done twice"
    UNMARKED_EFFECT = "the upstream was called without a marker before it"
    UNAUTHORISED_EFFECT = "an effect that nobody allowed"
    REUSED_APPROVAL = "an approval was consumed more than once"
    LOST_ACKNOWLEDGEMENT = "an answer is not in the ledger as it was given"
    FALSE_SUCCESS = "a success without the effect"
    FALSE_NOTHING = "said not to have happened, and it has"
    CHANGED_RESULT = "a result changed once it was known"
    BAD_RECEIPT = "RESULT or receipt does not verify"
    REWRITTEN_RECORD = "a record that was shown is another one now"
    NO_ANSWER = "the truth could not be learnt with the same key"
    UNEXPECTED_REFUSAL = "a legitimate call was refused for good, or met a defect"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule; ``where`` is an order, an execution, an approval or an index."""

    fault: Fault
    where: str
    words: str = ""


@dataclass
class Report:
    """``looked_at`` counts the cases of each rule."""

    looked_at: Counter[Fault] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def found(self, fault: Fault) -> list[Finding]:
        """The cases of one fault."""
        return [one for one in self.findings if one.fault is fault]


class Ledger:
    """The exported records by what they are about."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = {leaf.index: leaf for leaf in leaves}
        self._of: defaultdict[tuple[str, str], list[Leaf]] = defaultdict(list)
        self.markers: defaultdict[str, list[Leaf]] = defaultdict(list)  # by effect key
        self.claims: defaultdict[str, list[Leaf]] = defaultdict(list)  # consumptions, by approval
        self.decisions: defaultdict[str, list[Leaf]] = defaultdict(list)  # by approval
        for leaf in leaves:
            self._of[leaf.execution, leaf.type].append(leaf)
            if leaf.type == "execution.sent":
                self.markers[leaf.body["effect_key"]].append(leaf)
            elif leaf.type == "execution.claimed" and not leaf.body["again"] and leaf.body["approval_id"]:
                self.claims[leaf.body["approval_id"]].append(leaf)
            elif leaf.type == "approval.decided":
                self.decisions[leaf.body["approval_id"]].append(leaf)

    def of(self, execution: str, *types: str) -> list[Leaf]:
        """The records of these types of one execution."""
        return [leaf for type_ in types for leaf in self._of[execution, type_]]

    def proposal(self, execution: str) -> dict[str, Any]:
        """What was proposed; empty where that is lost."""
        found = self._of[execution, "execution.proposed"]
        return found[0].body if found else {}

    def all(self, type_: str) -> Iterator[Leaf]:
        """The records of one type."""
        return (leaf for leaf in self.leaves.values() if leaf.type == type_)


Rule = Callable[[History, Ledger], Iterator[Finding | None]]
"""Yields for each case what is wrong with it, or None."""


def check(history: History) -> Report:
    """All rules over one history."""
    report = Report()
    ledger = Ledger(history.leaves)
    for fault, rules in RULES.items():
        for rule in rules:
            for case in rule(history, ledger):
                report.looked_at[fault] += 1
                if case is not None:
                    report.findings.append(case)
    return report


def _if(broken: bool, fault: Fault, where: str, words: str = "") -> Finding | None:
    return Finding(fault, where, words) if broken else None


def _one_effect(history: History, _: Ledger) -> Iterator[Finding | None]:
    """Of each key, and of each order, which is asked for under one key."""
    for name in ("key", "order_id"):
        for where, number in Counter(line[name] for line in history.effects).items():
            yield _if(number > 1, Fault.DOUBLE_EFFECT, where, f"{number} effects")


def _marked(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """The n-th call under a key has an n-th marker, and it is older than the call."""
    seen: Counter[str] = Counter()
    for line in history.calls:
        seen[line["key"]] += 1
        markers = ledger.markers[line["key"]]
        if len(markers) < seen[line["key"]]:
            yield Finding(Fault.UNMARKED_EFFECT, line["order_id"], f"{seen[line['key']]} calls, {len(markers)} markers")
            continue
        at = dt.datetime.fromisoformat(markers[seen[line["key"]] - 1].document["at"]).timestamp()
        words = f"the marker is {at - line['at']:.6f} s younger than the call"
        yield _if(at > line["at"], Fault.UNMARKED_EFFECT, line["order_id"], words)


def _authorised(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """Each call belongs to an execution that was let through, and approved before where that was asked for."""
    for line in history.calls:
        markers = ledger.markers[line["key"]]
        if not markers:
            continue  # another rule's case
        execution = markers[0].execution
        closed = ledger.of(execution, *WITHOUT_EFFECT)
        claims = [one for one in ledger.of(execution, "execution.claimed") if not one.body["again"]]
        fault = Fault.UNAUTHORISED_EFFECT
        operation = ledger.proposal(execution).get("operation", NEVER_ALLOWED)
        if closed or len(claims) != 1 or operation == NEVER_ALLOWED:
            words = f"{operation}, {len(claims)} consumptions, {len(closed)} refusals"
            yield Finding(fault, line["order_id"], words)
        elif operation == NEEDS_APPROVAL:
            yield _if(not _approved(ledger, claims[0]), fault, line["order_id"], "without an approval before it")
        else:
            yield None


def _approved(ledger: Ledger, claim: Leaf) -> bool:
    decisions = ledger.decisions[claim.body["approval_id"]]
    return any(
        one.body["verdict"] == "approve" and one.execution == claim.execution and one.index < claim.index
        for one in decisions
    )


def _consumed_once(_: History, ledger: Ledger) -> Iterator[Finding | None]:
    for approval, claims in ledger.claims.items():
        yield _if(len(claims) != 1, Fault.REUSED_APPROVAL, approval, f"consumed {len(claims)} times")


def _acknowledged(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """What a caller was told is on record, byte for byte where it was signed."""
    for one in history.given:
        if one.execution:
            words = _missing(one, ledger)
            yield _if(bool(words), Fault.LOST_ACKNOWLEDGEMENT, one.execution, words)


_ON_RECORD = {
    "ApprovalPending": ("approval.requested",),
    "Denied": WITHOUT_EFFECT,
    "Held": ("execution.held",),
    "Completed": ("result.sealed",),
    "UpstreamError": ("result.sealed",),
}


def _missing(one: Given, ledger: Ledger) -> str:
    wanted = _ON_RECORD.get(one.kind, ("execution.proposed",))
    found = ledger.of(one.execution, *wanted)
    if not found:
        return f"{one.kind} was answered, and there is no {' or '.join(wanted)}"
    if one.approval and not any(
        leaf.body["approval_id"] == one.approval for leaf in ledger.of(one.execution, "approval.requested")
    ):
        return f"approval {one.approval} was never requested"
    if one.kind not in SEALED:
        return ""
    sealed = found[-1]
    if (sealed.aux, sealed.body["result_sha256"]) != (one.result, _payload_sha256(one.result)):
        return "the RESULT on record is another one"
    receipts = [leaf.aux for leaf in ledger.of(one.execution, "receipt")]
    return "" if receipts == [one.receipt] else "the receipt on record is another one"


def _payload_sha256(envelope: bytes) -> str:
    return hashlib.sha256(base64.b64decode(json.loads(envelope)["payload"])).hexdigest() if envelope else ""


def _people_acknowledged(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """What approver and operator were told is on record, once."""
    for approval, verdict in history.decided:
        verdicts = [leaf.body["verdict"] for leaf in ledger.decisions[approval]]
        yield _if(verdicts != [verdict], Fault.LOST_ACKNOWLEDGEMENT, approval, f"{verdict} is on record as {verdicts}")
    for execution, finding in history.resolved:
        findings = [leaf.body["finding"] for leaf in ledger.of(execution, "execution.resolved")]
        words = f"{finding} is on record as {findings}"
        yield _if(findings != [finding], Fault.LOST_ACKNOWLEDGEMENT, execution, words)


def _proved_successes(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """Whoever was told of a success, and every success on record, has exactly the effect that was asked for."""
    amounts: defaultdict[str, list[str]] = defaultdict(list)
    for line in history.effects:
        amounts[line["order_id"]].append(line["amount"])
    told = {one.order for one in history.given if one.kind == "Completed"}
    sealed = {leaf.execution for leaf in ledger.all("result.sealed") if leaf.body["state"] == "succeeded"}
    for order in sorted(told | {ledger.proposal(one)["target"]["id"] for one in sealed if ledger.proposal(one)}):
        found = amounts[order]
        yield _if(found != [AMOUNT], Fault.FALSE_SUCCESS, order, f"the upstream's effects are {found}")


def _true_nothings(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """What is closed as "nothing happened" never has an effect, however late."""
    acted = {line["order_id"] for line in history.effects}
    keys = {line["key"] for line in history.effects}
    for one in history.given:
        if one.kind == "Denied" or (one.kind == "UpstreamError" and one.result_class in NOTHING_HAPPENED):
            words = f"{one.kind} {one.result_class} {one.reason}"
            yield _if(one.order in acted, Fault.FALSE_NOTHING, one.order, words)
    for leaf in ledger.all("result.sealed"):
        if leaf.body["class"] in NOTHING_HAPPENED:
            yield _if(
                bool(keys & _keys(ledger, leaf.execution)),
                Fault.FALSE_NOTHING,
                leaf.execution,
                f"sealed as {leaf.body['class']}",
            )


def _keys(ledger: Ledger, execution: str) -> set[str]:
    return {leaf.body["effect_key"] for leaf in ledger.of(execution, "execution.claimed")}


def _not_executed_yet(history: History, _: Ledger) -> Iterator[Finding | None]:
    """Whatever says "not executed" was asked for before there was an effect; a refusal may not say it either."""
    first = {line["order_id"]: line["at"] for line in reversed(history.effects)}
    for one in history.given:
        if one.executed is False:
            words = f"{one.kind} {one.state} {one.result_class} {one.reason} says that nothing was executed"
            yield _if(first.get(one.order, one.asked_at) < one.asked_at, Fault.FALSE_NOTHING, one.order, words)


def _one_result(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    """A key has one execution, one end and one RESULT; what has ended is never open again; one seal is on record."""
    for order, answers in _by_order(history.given).items():
        executions = {one.execution for one in answers if not one.refused}
        closed = [one for one in answers if one.kind in CLOSED]
        ends = {(one.kind, one.state, one.result_class, one.result, one.receipt) for one in closed}
        known = min((one.got_at for one in closed), default=float("inf"))
        reopened = [one.kind for one in answers if one.kind not in CLOSED and not one.refused and one.asked_at > known]
        words = f"{len(executions)} executions, {len(ends)} ends, then {reopened}"
        yield _if(len(executions) > 1 or len(ends) > 1 or bool(reopened), Fault.CHANGED_RESULT, order, words)
    for execution, number in Counter(leaf.execution for leaf in ledger.all("result.sealed")).items():
        yield _if(number != 1, Fault.CHANGED_RESULT, execution, f"sealed {number} times")


def _by_order(given: Iterable[Given]) -> dict[str, list[Given]]:
    found: defaultdict[str, list[Given]] = defaultdict(list)
    for one in given:
        found[one.order].append(one)
    return found


def _verified(history: History, _: Ledger) -> Iterator[Finding | None]:
    """Of each sealed execution, as it was first answered, with the pinned root alone; and it says what was answered."""
    first = {one.execution: one for one in reversed(history.given) if one.kind in SEALED}
    for one in first.values():
        verdict = verify_offline.verify(
            result=one.result,
            receipt=one.receipt,
            proof=one.proof.encode() or None,
            root=history.root,
            keyset=history.keyset,
            action=one.action,
            state=one.state,
        )
        said = (verdict.facts.get("executionId"), verdict.facts.get("resultClass"))
        whole = verdict.verdict == verify_offline.VERIFIED and said == (one.execution, one.result_class)
        yield _if(not whole, Fault.BAD_RECEIPT, one.execution, f"{verdict.verdict}: {verdict.reason}")


def _unchanged(history: History, ledger: Ledger) -> Iterator[Finding | None]:
    for index, data in history.seen.items():
        found = ledger.leaves.get(index)
        yield _if(found is None or found.data != data, Fault.REWRITTEN_RECORD, str(index))


def _answered(history: History, _: Ledger) -> Iterator[Finding | None]:
    """Every caller of every order knows its end, or was refused for good, which is a fault of its own."""
    answers_to = _by_order(history.given)
    for order in sorted(history.asked):
        answers = answers_to.get(order, [])
        ended = any(one.kind in CLOSED or (one.refused and not one.retryable) for one in answers)
        yield _if(not ended, Fault.NO_ANSWER, order, f"only {sorted({one.kind for one in answers})}")


def _expected(history: History, _: Ledger) -> Iterator[Finding | None]:
    """Every call here is legitimate: what refuses it says that it may be repeated, and is no defect."""
    for one in history.given:
        if one.refused:
            broken = not one.retryable or one.kind == "Internal"
            yield _if(broken, Fault.UNEXPECTED_REFUSAL, one.order, f"{one.kind} {one.reason}: {one.detail}")


RULES: dict[Fault, tuple[Rule, ...]] = {
    Fault.DOUBLE_EFFECT: (_one_effect,),
    Fault.UNMARKED_EFFECT: (_marked,),
    Fault.UNAUTHORISED_EFFECT: (_authorised,),
    Fault.REUSED_APPROVAL: (_consumed_once,),
    Fault.LOST_ACKNOWLEDGEMENT: (_acknowledged, _people_acknowledged),
    Fault.FALSE_SUCCESS: (_proved_successes,),
    Fault.FALSE_NOTHING: (_true_nothings, _not_executed_yet),
    Fault.CHANGED_RESULT: (_one_result,),
    Fault.BAD_RECEIPT: (_verified,),
    Fault.REWRITTEN_RECORD: (_unchanged,),
    Fault.NO_ANSWER: (_answered,),
    Fault.UNEXPECTED_REFUSAL: (_expected,),
}
