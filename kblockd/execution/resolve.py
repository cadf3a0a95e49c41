"""An operator's finding: it seals a held execution, or says later what a sealed unknown was (C23, R499, R501).

The operator's owner is not the requester's. Present or absent frees the twin row; a RESULT is never changed.
"""

from __future__ import annotations

from kblockd.domain.errors import Aborted, FailedPrecondition, InvalidArgument, PermissionDenied, Reason
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.ledger.sealing import DispositionAdded, ExecutionResolved
from kblockd.domain.outcome import Finding
from kblockd.domain.principal import Principal
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass, State
from kblockd.evidence import receipts, statements
from kblockd.execution.journal import Entry, Journal, payload
from kblockd.execution.parts import Parts
from kblockd.execution.recover import Conclusion
from kblockd.execution.seal import seal_with
from kblockd.store.protocol import Conflict, Payload
from kblockd.telemetry.recorder import Trace

MAX_REASON = 2000


async def resolve(parts: Parts, operator: Principal, row: ExecutionRow, finding: Finding, reason: str) -> None:
    """Durable when it returns.

    Raises ``InvalidArgument``, ``PermissionDenied``, ``FailedPrecondition`` or ``Aborted``.
    """
    _check(parts, operator, row, reason)
    found = await parts.store.get(rows.execution(row.id))
    if found is None or found[1].records != row.records:
        raise _raced(row)
    journal = Journal(row.id, row.tenant, Trace(), found[0], row.attempt)
    said_sha256, said = payload(parts, row.id, "reason", reason)
    try:
        if row.state == State.HELD:
            await _seal(parts, journal, operator, row, finding, (said_sha256, said))
        else:
            await _dispose(parts, journal, operator, row, finding, (said_sha256, said))
    except Conflict:
        raise _raced(row) from None


def _check(parts: Parts, operator: Principal, row: ExecutionRow, reason: str) -> None:
    if not reason.strip():
        raise InvalidArgument.field("reason", "must say why")
    if len(reason) > MAX_REASON:
        raise InvalidArgument.field("reason", f"is longer than {MAX_REASON} characters")
    if "operator" not in operator.roles or parts.principals.get(operator.id) != operator:
        raise PermissionDenied(Reason.PERMISSION_DENIED, f"{operator.id} does not have the role operator")
    requester = parts.principals.get(row.requester)
    if operator.owner in (row.owner, requester.owner if requester else ""):
        raise PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"{operator.id} has the requester's owner: nobody resolves their own action",
            next_step="ask another operator",
        )
    sealed_unknown = row.state == State.FAILED and row.result_class == ResultClass.UNKNOWN_OUTCOME
    if row.state != State.HELD and not sealed_unknown:
        raise FailedPrecondition(
            Reason.WRONG_STATE,
            f"the execution is {row.state}; only one that is held, or sealed as unknown, can be resolved",
            next_step="look at the execution",
            execution_id=row.id,
        )


def _raced(row: ExecutionRow) -> Aborted:
    return Aborted(
        Reason.CONFLICT,
        "the execution changed at the same moment. Nothing was recorded.",
        retryable=True,
        next_step="look at the execution again",
        execution_id=row.id,
    )


def ending_of(row: ExecutionRow, finding: Finding) -> tuple[State, ResultClass, str]:
    """What a held execution becomes by an operator's finding (kblockd/execution/README.md#held)."""
    if finding is Finding.PRESENT:
        if row.verification is not None and row.verification.verdict == "prohibited":
            return State.FAILED, ResultClass.FAILED_AFTER_SIDE_EFFECT, "PROHIBITED_OUTCOME"
        return State.SUCCEEDED, ResultClass.COMPLETED_VERIFIED, ""
    if finding is Finding.ABSENT:
        return State.FAILED, ResultClass.FAILED_BEFORE_SIDE_EFFECT, "EFFECT_ABSENT"
    return State.FAILED, ResultClass.UNKNOWN_OUTCOME, "OUTCOME_UNKNOWN"


async def _seal(
    parts: Parts, journal: Journal, operator: Principal, row: ExecutionRow, finding: Finding, said: tuple[str, Payload]
) -> None:
    digest, kept = said
    state, result_class, code = ending_of(row, finding)
    resolved = Entry(
        ExecutionResolved(finding=str(finding), operator=operator.id, owner=operator.owner, reason_sha256=digest)
    )
    ending = Conclusion(state, result_class, code, f"resolved by an operator: {finding}")
    await seal_with(parts, journal, ending, before=[resolved], source="operator", payloads=[kept])


async def _dispose(
    parts: Parts, journal: Journal, operator: Principal, row: ExecutionRow, finding: Finding, said: tuple[str, Payload]
) -> None:
    digest, kept = said
    _, result_class, _ = ending_of(row, finding)
    signed = receipts.sign_disposition(
        statements.Disposition(
            result=row.result_sha256,
            execution_id=row.id,
            finding=statements.LaterFinding.CLOSED_BY_OPERATOR,
            result_class=result_class,
            source="operator",
            evidence_sha256=digest,
            operator=operator.id,
            previous=row.disposition.sha256 if row.disposition else None,
            issued_at=parts.clock.now(),
        ),
        parts.keys,
    )
    body = DispositionAdded(
        kind=str(statements.LaterFinding.CLOSED_BY_OPERATOR),
        finding=str(finding),
        result_class=result_class,
        operator=operator.id,
        owner=operator.owner,
        reason_sha256=digest,
        disposition_sha256=signed.sha256,
    )
    entry = Entry(body, signed.envelope)
    ticket = await journal.commit(parts, Stage.SEAL, [entry], payloads=[kept])
    await ticket.durable()
