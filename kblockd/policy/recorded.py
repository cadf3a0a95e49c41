"""The decisions that a ledger holds, and the inputs that they were made over, put together again.

Blocking reads over whatever gives records, rows and payloads: a store that is looked at, a backup. What cannot be put
together exactly is ``NotReplayable`` with the reason; the digest in the record decides, nothing is guessed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from kblockd.domain.canonical import canonical, reparse, sha256_hex
from kblockd.domain.contract import ActionContract, InvalidContract, derive_intent, parse_stored
from kblockd.domain.errors import KblockError
from kblockd.domain.ledger import read, rows
from kblockd.domain.ledger.approvals import ApprovalRequested
from kblockd.domain.ledger.attempt import RecoveryPlanned, Verified
from kblockd.domain.ledger.claim import Claimed
from kblockd.domain.ledger.configuration import AuthzDecided
from kblockd.domain.ledger.proposal import CallRefused, Proposed
from kblockd.domain.ledger.record import Body, Record
from kblockd.domain.ledger.rows import R, RowKey
from kblockd.domain.ledger.values import Agreed
from kblockd.policy import inputs, verdicts
from kblockd.policy.entrypoints import AUTHZ, DECISION, PRECONDITIONS, RECOVERY, VERIFICATION
from kblockd.policy.floor import Floor, of_record
from kblockd.policy.verdicts import Verdict
from kblockd.store.protocol import Append, Key

_ASKED: Final[Mapping[tuple[type[Body], int | None], str]] = {
    (AuthzDecided, 0): AUTHZ,
    (Proposed, 3): DECISION,
    (CallRefused, 3): DECISION,
    (Claimed, 9): PRECONDITIONS,
    (CallRefused, 8): PRECONDITIONS,
    (Verified, 14): VERIFICATION,
    (RecoveryPlanned, 15): RECOVERY,
}
"""By the stage that writes the record."""
_SUBJECTS: Final = 64  # of neighbours in the ledger; an action's arguments may have a megabyte


class Reader(Protocol):
    """``kblockd.store.database.StoreView``."""

    def leaf(self, index: int) -> Append | None:
        """A record, or None beyond the last."""
        ...

    def get(self, key: RowKey[R]) -> tuple[int, R] | None:
        """A row with its version."""
        ...

    def raw(self, key: Key) -> bytes | None:
        """A payload."""
        ...


class Why(enum.StrEnum):
    """Why a decision cannot be replayed."""

    INPUT_NOT_KEPT = "INPUT_NOT_KEPT"
    """policy.input_retention_days was 0, or the daemon older than the setting."""
    INPUT_ERASED = "INPUT_ERASED"
    """Its retention has passed."""
    PAYLOAD_ERASED = "PAYLOAD_ERASED"
    """The call, the contract, a snapshot, an output or a read is gone."""
    INPUT_DIFFERS = "INPUT_DIFFERS"
    """What is there does not give the digest on record."""


class NotReplayable(Exception):
    """``why`` says what is missing."""

    def __init__(self, why: Why) -> None:
        super().__init__(str(why))
        self.why = why


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision on record; ``at`` is RFC 3339, ``verdict`` what it said. ``about``: the execution, or who called what
    where there is none. ``floor``: the approval floor that stood under it."""

    index: int
    at: str
    execution: str
    about: str
    entrypoint: str
    revision: str
    decision_id: str
    input_sha256: str
    input_payload: str
    verdict: Verdict
    floor: Floor | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """The exact input of a decision; ``past_return`` bounds its answer (``entrypoints.bounded``)."""

    document: Mapping[str, Any]
    past_return: bool


@dataclass(frozen=True, slots=True)
class _Subject:
    about: Mapping[str, Any]
    past_return: bool


def decisions(ledger: Reader) -> Iterator[Recorded]:
    """In the order of the ledger; only those that an engine made (a failure is none)."""
    index = 0
    stored = ledger.leaf(0)
    while stored is not None:
        following = ledger.leaf(index + 1)
        record = read(stored.leaf)
        entrypoint = _ASKED.get((type(record.body), record.stage))
        if entrypoint and isinstance(record.body, verdicts.Asked) and record.body.decision_id:
            yield _recorded(index, record, record.body, entrypoint, following)
        index, stored = index + 1, following


def _recorded(index: int, record: Record, body: verdicts.Asked, entrypoint: str, following: Append | None) -> Recorded:
    caller = f"{body.principal} {body.method}" if isinstance(body, AuthzDecided | CallRefused) else ""
    return Recorded(
        index,
        record.at,
        record.execution,
        record.execution or caller,
        entrypoint,
        body.policy_revision or "",
        body.decision_id or "",
        body.input_sha256 or "",
        body.input_payload or "",
        verdicts.on_record(entrypoint, body, _request(body, following)),
        of_record(body.floor or None) if isinstance(body, Proposed | CallRefused) else None,
    )


def _request(body: verdicts.Asked, following: Append | None) -> ApprovalRequested | CallRefused | None:
    """What an approval takes: in the record after the proposal, of the same commit, or in that of the refusal."""
    if isinstance(body, CallRefused):
        return body
    if not isinstance(body, Proposed) or body.effect != "require_approval" or following is None:
        return None
    requested = read(following.leaf).body
    return requested if isinstance(requested, ApprovalRequested) else None


class Inputs:
    """Puts the inputs of one ledger's decisions together again."""

    def __init__(self, ledger: Reader) -> None:
        self._ledger = ledger
        self._contract = lru_cache(_SUBJECTS)(self._read_contract)
        self._subject = lru_cache(_SUBJECTS)(self._read_subject)

    def question(self, recorded: Recorded) -> Question:
        """The input whose digest is on record; raises ``NotReplayable``."""
        if not recorded.input_payload:
            raise NotReplayable(Why.INPUT_NOT_KEPT)
        kept = self._ledger.raw(rows.policy_input(recorded.execution, recorded.input_payload))
        if kept is None:
            raise NotReplayable(Why.INPUT_ERASED)
        try:
            question = self._put_together(recorded, reparse(kept))
            body = canonical(question.document)
        except (KeyError, TypeError, ValueError, InvalidContract, KblockError):
            raise NotReplayable(Why.INPUT_DIFFERS) from None
        if sha256_hex(body) != recorded.input_sha256:
            raise NotReplayable(Why.INPUT_DIFFERS)
        return question

    def _put_together(self, recorded: Recorded, stored: Mapping[str, Any]) -> Question:
        if not recorded.execution:
            document = inputs.whole_again(stored)
            contract = document["contract"]
            return Question(document, contract is not None and parse_stored(contract).requires_approval)
        subject = self._subject(recorded.execution)
        document = inputs.again(subject.about, stored, lambda digest: self._value(recorded, digest))
        return Question(document, subject.past_return)

    def _read_subject(self, execution: str) -> _Subject:
        agreed = self._agreed(execution)
        call = reparse(self._payload(execution, agreed.call_sha256))
        contract = self._contract(agreed.contract_sha256)
        about = inputs.subject(
            operation=agreed.operation,
            risk_tier=agreed.risk_tier,
            environment=agreed.environment,
            tool=agreed.tool,
            tool_version=agreed.tool_version,
            target=agreed.target.document(),
            action_sha256=agreed.action_sha256,
            contract_sha256=agreed.contract_sha256,
            upstream=agreed.upstream,
            origin=agreed.origin,
            definition_sha256=agreed.definition_sha256,
            intent=derive_intent(contract, call["args"]),
            envelope=call["envelope"],
            args=call["args"],
            contract=contract.document,
        )
        return _Subject(about, contract.requires_approval)

    def _agreed(self, execution: str) -> Agreed:
        """From the record, which the tree vouches for, and not from the row."""
        found = self._ledger.get(rows.execution(execution))
        stored = self._ledger.leaf(found[1].records[0]) if found else None
        body = read(stored.leaf).body if stored else None
        if not isinstance(body, Agreed):
            raise NotReplayable(Why.INPUT_DIFFERS)
        return body

    def _read_contract(self, digest: str) -> ActionContract:
        return parse_stored(reparse(self._payload("contract", digest)))

    def _value(self, recorded: Recorded, digest: str) -> Any:
        return reparse(self._payload(recorded.execution, digest))["value"]

    def _payload(self, scope: str, digest: str) -> bytes:
        data = self._ledger.raw(rows.payload(scope, digest))
        if data is None:
            raise NotReplayable(Why.PAYLOAD_ERASED)
        return data
