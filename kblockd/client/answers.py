"""The types of answers to a call (R361, R362): match on the class, read the fields."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

from kblockd.client.calls import Call
from kblockd.domain.canonical import reparse
from kblockd.domain.outcome import ApprovalView, CallOutcome, CallStatus, StageEvent

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(CallOutcome):
    """An outcome, and the call that it answers (None if it was looked up). ``output_omitted``: larger than 4 MiB."""

    call: Call | None = None
    output_omitted: bool = False

    @property
    def output(self) -> Any:
        """The part of the upstream's answer that the contract reveals; None if there is none."""
        return reparse(self.output_json) if self.output_json else None


class Completed(Answer):
    """Sealed, succeeded."""

    __slots__ = ()


class UpstreamError(Answer):
    """Sealed, failed; ``outcome_unknown`` says whether an effect may exist."""

    __slots__ = ()


class ApprovalPending(Answer):
    """Waiting for a person's approval; nothing was consumed (R361)."""

    __slots__ = ()


class Denied(Answer):
    """Rejected, expired or cancelled; nothing was consumed and nothing will run."""

    __slots__ = ()


class InProgress(Answer):
    """Still executing when the wait ended; repeat the identical call or watch."""

    __slots__ = ()


class Held(Answer):
    """Waiting for an operator."""

    __slots__ = ()


KINDS: Final[dict[CallStatus, type[Answer]]] = {
    CallStatus.COMPLETED: Completed,
    CallStatus.UPSTREAM_ERROR: UpstreamError,
    CallStatus.APPROVAL_PENDING: ApprovalPending,
    CallStatus.DENIED: Denied,
    CallStatus.IN_PROGRESS: InProgress,
    CallStatus.HELD: Held,
}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; ``next_token`` is empty on the last page."""

    items: tuple[T, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """One execution with its events so far, oldest first."""

    answer: Answer
    events: tuple[StageEvent, ...]


@dataclass(frozen=True, slots=True)
class SignedDecision:
    """The approval after the decision, and the signed decision (DSSE)."""

    approval: ApprovalView
    approval_dsse: bytes


@dataclass(frozen=True, slots=True)
class Leaves:
    """Ledger records as (index, exact bytes); ``next_index`` is None if no record follows yet."""

    leaves: tuple[tuple[int, bytes], ...]
    next_index: int | None


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """RFC 6962 path and the newest checkpoint."""

    hashes: tuple[bytes, ...]
    checkpoint: str


@dataclass(frozen=True, slots=True)
class SignedReceipt:
    """A DSSE envelope and its tlog-proof (empty while no checkpoint covers it)."""

    receipt_dsse: bytes
    tlog_proof: str


def answer(outcome: CallOutcome, call: Call | None, *, output_omitted: bool = False) -> Answer:
    """The typed answer."""
    values = {field.name: getattr(outcome, field.name) for field in fields(CallOutcome)}
    return KINDS[outcome.status](**values, call=call, output_omitted=output_omitted)
