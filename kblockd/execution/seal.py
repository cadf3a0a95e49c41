"""Stage 16: RESULT and receipt signed, the execution closed, what it held released; or held for an operator.

The signatures stand beside the leaves, which hold digests and the key's id, and are made by the thread that writes all
of it in one batch. The seal is conditioned on the active key's row. The receipt names every record of the execution;
its own place is shown by the ledger's proof (kblockd/evidence/README.md; R467 to R472, R110).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from kblockd.domain.canonical import canonical
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import Reason, Unavailable
from kblockd.domain.ledger import envelope, rows, sealing
from kblockd.domain.ledger.rows import ExecutionRow, Verification
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass, State
from kblockd.domain.values import value_type
from kblockd.evidence import receipts, statements
from kblockd.evidence.receipts import Signed
from kblockd.evidence.statements import LedgerEvent, Receipt, Result
from kblockd.execution.decide import credential_ref
from kblockd.execution.journal import Entry, Journal, payload
from kblockd.execution.load import value_if_readable
from kblockd.execution.parts import Parts
from kblockd.execution.recover import Conclusion, Ending, Hold
from kblockd.execution.signing_keys import KeyMismatch, seal_condition
from kblockd.execution.stages import stage
from kblockd.store.protocol import Condition, Payload

RECORDED_FAILURE = "UPSTREAM_FAILED"
INTERRUPTED = "INTERRUPTED"


@value_type(frozen=True, slots=True)
class Closed:
    """Sealed or held; the row says which."""

    execution_id: str


@stage(Stage.SEAL)
async def seal(parts: Parts, ending: Ending) -> Closed:
    """Durable when it returns. Raises ``Conflict`` when the key or the execution changed under it."""
    await seal_with(parts, ending.run.journal, ending.conclusion)
    return Closed(ending.run.action.execution_id)


async def seal_with(
    parts: Parts,
    journal: Journal,
    ending: Conclusion,
    *,
    before: Sequence[Entry] = (),
    source: str = "",
    payloads: Sequence[Payload] = (),
) -> None:
    """Seals in one commit with ``before`` (an operator's resolution); ``source`` names who verified, else the read.

    By the row alone: an execution is sealed although its contract or its call cannot be read any more.
    """
    row = journal.row(parts)
    result = await _result(parts, journal, ending, row, source)
    signed = receipts.sign_result(result, parts.keys)
    said_sha256, said = payload(parts, row.id, "detail", ending.detail)
    sealed = Entry(_body(ending, signed, said_sha256), sign=signed.sign)
    own = journal.drawn(parts, Stage.SEAL, [*before, sealed])
    receipt = await _receipt(parts, journal, ending, row, signed, own)
    entries = [*own, Entry(sealing.ReceiptIssued(), leaf=receipt.payload, sign=receipt.sign)]
    ticket = await journal.commit(
        parts, Stage.SEAL, entries, conditions=await _key_condition(parts), payloads=[said, *payloads]
    )
    await ticket.durable()


@stage(Stage.HOLD)
async def hold(parts: Parts, held: Hold) -> Closed:
    """Takes the seal's place. Not closed: no RESULT yet, and the twin row stays. Durable when it returns."""
    kept = held.result_class or ResultClass.NONE
    return await _hold(parts, held.run.journal, held.code, keep_lock=held.keep_lock, result_class=kept)


async def hold_unreadable(parts: Parts, journal: Journal) -> Closed:
    """What was agreed on cannot be read by this release: an operator says what became of it, and nobody else goes on.
    Durable when it returns; raises ``Conflict`` when somebody else has moved the execution."""
    return await _hold(parts, journal, str(Reason.STORED_UNREADABLE), keep_lock=True, result_class=ResultClass.NONE)


async def _hold(parts: Parts, journal: Journal, code: str, *, keep_lock: bool, result_class: ResultClass) -> Closed:
    body = sealing.ExecutionHeld(code=code[:64], keep_lock=keep_lock, result_class=result_class)
    ticket = await journal.commit(parts, Stage.HOLD, [Entry(body)])
    await ticket.durable()
    return Closed(journal.execution_id)


def _body(ending: Conclusion, signed: Signed, said_sha256: str) -> sealing.ResultSealed:
    failed = ending.state is State.FAILED
    recorded = (INTERRUPTED if ending.code == INTERRUPTED else RECORDED_FAILURE) if failed else ""
    return sealing.ResultSealed(
        state=ending.state,
        result_class=ending.result_class,
        code=recorded,
        wire_code=ending.code[:64] if failed else "",
        detail_sha256=said_sha256,
        result_sha256=signed.sha256,
        key=signed.key_id,
        outcome_unknown=ending.result_class is ResultClass.UNKNOWN_OUTCOME,
    )


async def _key_condition(parts: Parts) -> list[Condition]:
    """The key that signs must be the one that the ledger calls active; the start and stage 5 asked already."""
    try:
        return [await seal_condition(parts.store, parts.keys)]
    except KeyMismatch as mismatch:
        step = "restore the key folder, then restart the daemon"
        raise Unavailable(Reason.INTERNAL, str(mismatch), next_step=step) from None


async def _result(parts: Parts, journal: Journal, ending: Conclusion, row: ExecutionRow, source: str) -> Result:
    output = await value_if_readable(parts, row.id, row.output_sha256, journal.written)
    upstream = parts.upstreams.get(row.upstream)
    reference = credential_ref(upstream) if upstream else "none"
    return Result(
        action=row.action_sha256,
        output_sha256=row.output_sha256 if output is not None else None,
        execution_id=row.id,
        tenant=row.tenant,
        caller=statements.CallerIdentity(row.requester),
        tool=row.tool,
        tool_version=row.tool_version,
        target=statements.TargetRef(row.target.type, row.target.id, row.target_version or None),
        state=statements.SealedState(str(ending.state)),
        result_class=ending.result_class,
        code=ending.code if ending.state is State.FAILED else "",
        attempts=row.marker,
        effect_key=row.effect_key,
        upstream=statements.UpstreamPlace(row.origin, row.operation_id or None),
        contract_sha256=row.contract_sha256,
        started_at=parse_rfc3339(row.claimed_at),
        finished_at=parts.clock.now(),
        idempotency=statements.Idempotency(row.caller_key, False) if row.caller_key else None,
        approval=await _approval_use(parts, row),
        policy=statements.PolicyUse(row.decision_id, row.policy_revision),
        verification=_verification(row.verification, source),
        output=_output(output),
        credential=statements.CredentialUse(reference, "") if reference != "none" else None,
        daemon=statements.DaemonIdentity(parts.instance.version, parts.instance.name),
    )


def _verification(verification: Verification | None, source: str) -> statements.VerificationResult | None:
    if source:
        return statements.VerificationResult("resolved", source)
    if not verification:
        return None
    return statements.VerificationResult(verification.verdict, verification.source, verification.read_sha256 or None)


def _output(output: Any) -> statements.Output | None:
    if output is None:
        return None
    return statements.Output(len(canonical(output)), "application/json", "salted")


async def _approval_use(parts: Parts, row: ExecutionRow) -> statements.ApprovalUse | None:
    digest = await _approval_digest(parts, row)
    if digest is None or row.consumed_index is None:
        return None
    return statements.ApprovalUse(row.approval_id, digest, row.consumed_index)


async def _approval_digest(parts: Parts, row: ExecutionRow) -> str | None:
    if not row.approval_id:
        return None
    found = await parts.store.get(rows.approval(row.approval_id))
    if found is None or not found[1].decisions:
        return None
    return found[1].decisions[-1].statement_sha256


async def _receipt(
    parts: Parts, journal: Journal, ending: Conclusion, row: ExecutionRow, result: Signed, own: Sequence[Entry]
) -> Signed:
    events = [await _event(parts, journal, index) for index in row.records]
    # Those of the receipt's own commit have no place yet when it is signed.
    events += [LedgerEvent(entry.body.TYPE, _leaf_hash(entry.leaf)) for entry in own]
    receipt = Receipt(
        result=result.sha256,
        action=row.action_sha256,
        approval=await _approval_digest(parts, row),
        execution_id=row.id,
        state=statements.SealedState(str(ending.state)),
        ledger=statements.LogIdentity(parts.instance.origin),
        events=tuple(events),
        issued_at=parts.clock.now(),
    )
    return receipts.sign_receipt(receipt, parts.keys)


async def _event(parts: Parts, journal: Journal, index: int) -> LedgerEvent:
    """A record of this run as it was drawn, another one (an approver's decision, an earlier life's) from the ledger."""
    if (entry := journal.written.records.get(index)) is not None:
        return LedgerEvent(entry.body.TYPE, _leaf_hash(entry.leaf), index)
    record = await parts.store.leaf(index)
    if record is None:
        raise ValueError(f"record {index} of the execution is not in the ledger")
    return LedgerEvent(envelope(record.leaf).type, _leaf_hash(record.leaf), index)


def _leaf_hash(leaf: bytes) -> str:
    return hashlib.sha256(b"\x00" + leaf).hexdigest()
