"""How it is known that a call had no effect: in exactly four ways, and this is the only module that says so.

1. *Its bytes never left.* The daemon did not call the adapter, or the wrapper vouches for NOT_SENT: the adapter refused
   the call before any I/O, or the guarded exchange that was marked for the request wrote no byte (``upstream.scope``).
2. *A look-up says absent*, the contract declares it strongly consistent and its absence final, and the question was
   asked long enough after the last task that could still send had ended (``Finality``). Work that an answer said is
   still going on makes absence unprovable (``at_work``).
3. *The tool's own error*, where the contract says that its errors are effect-free.
4. *The tool's own error with a status or code that the contract lists in* ``rejected_before_work``.

An error answer is the tool's own only if it answers this very request and has the shape that ``tool.errors`` declares;
a 5xx never is, nor what JSON-RPC has instead of one. Everything else is unknown: no text, no JSON-RPC code, no status
of an intermediary and no library's idea of "invalid" counts. Source: UPS-01 to UPS-09, C2, HTP-08, MCP-06, VER-01.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from kblockd.domain import pointer
from kblockd.domain.contract import ActionContract, Lookup
from kblockd.domain.contract.errors import Codes, ToolErrors, may_be_own
from kblockd.execution.late import LateOutcomes
from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.wrapper import NotBegun

IN_PROGRESS: Final = "IN_PROGRESS"
STILL_RUNNING: Final = "CALL_STILL_RUNNING"
AT_WORK: Final = "WORK_GOES_ON"
NOT_FINAL_YET: Final = "NOT_FINAL_YET"


class Proof(enum.StrEnum):
    """What an attempt's outcome proves by itself, as the attempt's record says it."""

    NONE = ""
    NOT_BEGUN = "not_begun"  # nor was the adapter called: no attempt of those that the contract allows
    NOT_SENT = "not_sent"
    EFFECT_FREE = "effect_free"
    REJECTED = "rejected_before_work"


def proof(outcome: Outcome, contract: ActionContract) -> Proof:
    """Ways 1, 3 and 4."""
    if isinstance(outcome, NotBegun):
        return Proof.NOT_BEGUN
    if outcome.sent is Sent.NOT_SENT:
        return Proof.NOT_SENT
    errors = contract.tool.errors
    if errors is None or not own_error(outcome, errors) or _listed(outcome, errors, errors.in_progress):
        return Proof.NONE
    if _listed(outcome, errors, errors.rejected_before_work):
        return Proof.REJECTED
    return Proof.EFFECT_FREE if contract.tool.errors_are_effect_free else Proof.NONE


def in_progress(outcome: Outcome, contract: ActionContract) -> bool:
    """Whether the tool itself says that it is still at work on this effect key: an earlier attempt has arrived."""
    errors = contract.tool.errors
    return errors is not None and own_error(outcome, errors) and _listed(outcome, errors, errors.in_progress)


def at_work(outcome: Outcome, contract: ActionContract) -> bool:
    """Whether the answer says that the effect may still come: then no look-up proves an absence, however late."""
    return outcome.sent is Sent.ACCEPTED or outcome.facts.at_work or in_progress(outcome, contract)


def own_error(outcome: Outcome, errors: ToolErrors) -> bool:
    """Whether an error answer is the tool's, and not that of something before it."""
    facts = outcome.facts
    if outcome.sent is not Sent.ANSWERED or not outcome.is_error or not facts.answers_request:
        return False
    if facts.form != errors.place or not may_be_own(facts.status, facts.rpc_code):
        return False
    if errors.media_type is not None and facts.media_type != errors.media_type:
        return False
    if errors.has is not None and _at(outcome.output, errors.has) is None:
        return False
    return errors.validator is None or (outcome.output is not None and not errors.validator.violations(outcome.output))


def _listed(outcome: Outcome, errors: ToolErrors, codes: Codes) -> bool:
    said = [outcome.facts.status, outcome.facts.rpc_code]
    if errors.code is not None and isinstance(text := _at(outcome.output, errors.code), str):
        return text in codes or any(code is not None and code in codes for code in said)
    return any(code is not None and code in codes for code in said)


def _at(document: Any, at: str) -> Any:
    """None where nothing stands there, or null."""
    try:
        return pointer.get(document, at)
    except pointer.PointerMissing:
        return None


class Finality:
    """Way 2: from when an absent answer to a look-up is final for one execution; times are monotonic seconds.

    ``since``: nothing of the call left after it as far as its own run knows. A task of an attempt that outlived its
    answer counts until it has ended; one that had to be cancelled never has (UPS-08). A restart counts anew: no task
    outlives the process.
    """

    def __init__(self, execution_id: str, since: float, late: LateOutcomes, *, working: bool) -> None:
        self._execution_id = execution_id
        self._since = since
        self._late = late
        self._working = working

    def doubt(self, lookup: Lookup, asked_at: float) -> str:
        """Why an absent answer to a question asked at ``asked_at`` proves nothing, as a code; empty if it proves."""
        if self._working:
            return AT_WORK
        ended = self._late.ended(self._execution_id, self._since)
        if ended is None:
            return STILL_RUNNING
        # The question must have been asked after finality, not merely answered after it.
        final = ended + (lookup.absent_final_after_seconds or 0)
        return "" if lookup.proves_absence and asked_at >= final else NOT_FINAL_YET

    def final_at(self, lookup: Lookup) -> float | None:
        """When it becomes final; None while that is not known."""
        ended = self._late.ended(self._execution_id, self._since)
        if self._working or ended is None or not lookup.proves_absence:
            return None
        return ended + (lookup.absent_final_after_seconds or 0)
