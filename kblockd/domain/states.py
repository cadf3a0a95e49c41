"""States, phases and events of an execution, in one table.

The table is the law: ``advance`` raises ``IllegalTransition`` for anything that is not in it, and the diagram in
the documentation is generated from it (``python -m kblockd.domain.diagram``). Terminal states absorb: no event
leaves them. Source: kblockd/execution/README.md#stages, C6, C7, C19.
"""

from __future__ import annotations

import enum
from typing import Final


class State(enum.StrEnum):
    """What a caller sees; the words are those of the requirements."""

    PROPOSED = "proposed"
    PENDING_APPROVAL = "pending_approval"
    APPROVED = "approved"
    EXECUTING = "executing"
    HELD = "held"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Phase(enum.StrEnum):
    """Where an executing action stands; empty in every other state. Nothing leads to ``cancelling`` yet."""

    NONE = ""
    CLAIMED = "claimed"
    SENT = "sent"
    ACCEPTED = "accepted"
    RECONCILING = "reconciling"
    VERIFYING = "verifying"
    RECOVERING = "recovering"
    CANCELLING = "cancelling"


class ResultClass(enum.StrEnum):
    """The ten classes of an outcome (R211 to R220); empty until one is known."""

    NONE = ""
    NOT_STARTED = "not_started"
    ACCEPTED = "accepted"
    COMPLETED_VERIFIED = "completed_verified"
    COMPLETED_UNVERIFIED = "completed_unverified"
    PARTIALLY_COMPLETED = "partially_completed"
    FAILED_BEFORE_SIDE_EFFECT = "failed_before_side_effect"
    FAILED_AFTER_SIDE_EFFECT = "failed_after_side_effect"
    UNKNOWN_OUTCOME = "unknown_outcome"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"


BEFORE_EFFECT: Final = (ResultClass.NOT_STARTED, ResultClass.FAILED_BEFORE_SIDE_EFFECT)
"""The classes that say that nothing happened."""


def acted(state: str, marker: int, result_class: str) -> bool:
    """Whether an effect may exist: something was sent, and it is not shown that nothing came of it.

    While it runs a class is one attempt's: an earlier one may have had its effect all the same (UPS-07).
    """
    return bool(marker) and (state == State.EXECUTING or result_class not in BEFORE_EFFECT)


class Event(enum.StrEnum):
    """What moves an execution; each is caused by exactly one kind of record (``kblockd.domain.ledger``)."""

    ALLOWED = "allowed"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CLAIMED = "claimed"
    SENT = "sent"
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    LOST = "lost"
    NOT_SENT = "not_sent"
    RECONCILED = "reconciled"
    VERIFIED = "verified"
    RECOVERY_PLANNED = "recovery_planned"
    HELD = "held"
    RESOLVED = "resolved"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


Place = tuple[State, Phase]


class IllegalTransition(Exception):
    """An event that the table does not know in this place: a defect, never an outcome."""

    def __init__(self, place: Place, event: Event) -> None:
        super().__init__(f"{event} is illegal in {place[0]}{'/' + place[1] if place[1] else ''}")
        self.place = place
        self.event = event


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.REJECTED, State.EXPIRED, State.CANCELLED})


def _executing(phase: Phase) -> Place:
    return (State.EXECUTING, phase)


def _at(state: State) -> Place:
    return (state, Phase.NONE)


_CLAIMED = _executing(Phase.CLAIMED)
_SENT = _executing(Phase.SENT)
_ACCEPTED = _executing(Phase.ACCEPTED)
_RECONCILING = _executing(Phase.RECONCILING)
_VERIFYING = _executing(Phase.VERIFYING)
_RECOVERING = _executing(Phase.RECOVERING)
_HELD = _at(State.HELD)
_SUCCEEDED = _at(State.SUCCEEDED)
_FAILED = _at(State.FAILED)

# An execution that was claimed can always be held or end failed: the sweep closes whatever no longer advances.
_CLOSING: dict[Event, Place] = {Event.HELD: _HELD, Event.FAILED: _FAILED}

TRANSITIONS: Final[dict[Place, dict[Event, Place]]] = {
    _at(State.PROPOSED): {
        Event.ALLOWED: _at(State.APPROVED),
        Event.APPROVAL_REQUESTED: _at(State.PENDING_APPROVAL),
        Event.REJECTED: _at(State.REJECTED),
    },
    _at(State.PENDING_APPROVAL): {
        Event.APPROVED: _at(State.APPROVED),
        Event.REJECTED: _at(State.REJECTED),
        Event.EXPIRED: _at(State.EXPIRED),
        Event.CANCELLED: _at(State.CANCELLED),
    },
    _at(State.APPROVED): {
        Event.CLAIMED: _CLAIMED,
        Event.REJECTED: _at(State.REJECTED),
        Event.EXPIRED: _at(State.EXPIRED),
        Event.CANCELLED: _at(State.CANCELLED),
    },
    # 9r: a claimed, unsent execution is claimed again under a new fence.
    # One that is given up before its next attempt is looked up once more if an earlier attempt was lost (UPS-07).
    _CLAIMED: {Event.CLAIMED: _CLAIMED, Event.SENT: _SENT, Event.RECONCILED: _RECONCILING, **_CLOSING},
    _SENT: {
        Event.NOT_SENT: _RECOVERING,
        Event.ANSWERED: _VERIFYING,
        Event.ACCEPTED: _ACCEPTED,
        Event.LOST: _RECONCILING,
        **_CLOSING,
    },
    _ACCEPTED: {
        Event.ANSWERED: _VERIFYING,
        Event.LOST: _RECONCILING,
        **_CLOSING,
    },
    _RECONCILING: {
        Event.RECONCILED: _RECONCILING,
        Event.VERIFIED: _VERIFYING,
        Event.RECOVERY_PLANNED: _RECOVERING,
        Event.SUCCEEDED: _SUCCEEDED,
        **_CLOSING,
    },
    _VERIFYING: {
        Event.VERIFIED: _VERIFYING,
        Event.RECOVERY_PLANNED: _RECOVERING,
        Event.SUCCEEDED: _SUCCEEDED,
        **_CLOSING,
    },
    # Recovery by another attempt goes back in by 9r; everything else ends or holds.
    _RECOVERING: {
        Event.RECOVERY_PLANNED: _RECOVERING,
        Event.CLAIMED: _CLAIMED,
        Event.RECONCILED: _RECONCILING,
        **_CLOSING,
    },
    _HELD: {Event.RESOLVED: _HELD, Event.SUCCEEDED: _SUCCEEDED, Event.FAILED: _FAILED},
    **{_at(state): {} for state in sorted(TERMINAL)},
}


def advance(place: Place, event: Event) -> Place:
    """The next place; raises ``IllegalTransition``."""
    try:
        return TRANSITIONS[place][event]
    except KeyError:
        raise IllegalTransition(place, event) from None
