"""``kblock.v1.LedgerService``: reads are filtered by the caller's view; proofs are not, as they hold only hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kblockd._proto.kblock.v1 import ledger_service_pb2 as pb
from kblockd.admission import Admission
from kblockd.domain.errors import FailedPrecondition, InvalidArgument, Reason
from kblockd.domain.ledger import envelope, rows
from kblockd.ledger.ledger import Entry, SignedHead
from kblockd.ledger.tlog_proof import TlogProof
from kblockd.rpc import answers, convert
from kblockd.rpc.identity import Caller
from kblockd.rpc.services.facades import ExecutionsApi

Entries = list[Entry]
Hashes = list[bytes]


class LedgerReader(Protocol):
    """``kblockd.ledger.ledger.Ledger``; raises ValueError for records that are not durable."""

    def size(self) -> int: ...
    async def checkpoint(self) -> SignedHead: ...
    async def proof(self, index: int, under: SignedHead | None = ...) -> TlogProof: ...
    async def consistency(self, old: int, new: int) -> Hashes: ...
    async def read(self, first: int, limit: int = ...) -> Entries: ...
    async def read_rows(self, *prefixes: rows.RowKey[rows.Row]) -> Entries: ...


class LedgerService:
    """Read-only."""

    def __init__(self, ledger: LedgerReader, executions: ExecutionsApi, admission: Admission) -> None:
        self._ledger = ledger
        self._executions = executions
        self._admission = admission

    async def Read(self, caller: Caller, request: pb.LedgerServiceReadRequest) -> pb.LedgerServiceReadResponse:
        """Records from an index, or of one execution."""
        limit = convert.leaves(request.limit)
        if request.execution_id:
            return await self._read_execution(caller, request.execution_id, request.from_index, limit)
        entries = await self._ledger.read(request.from_index, limit)
        visible = await self._visible(caller, entries)
        # What is looked at and not shown costs as much: a narrow view must not read the whole ledger for nothing.
        self._admission.answered(_size(entries) - _size(visible))
        leaves = answers.leaves((entry.index, entry.leaf) for entry in visible)
        answer = pb.LedgerServiceReadResponse(leaves=leaves)
        cut = len(leaves) < len(visible)
        following = leaves[-1].index + 1 if cut else request.from_index + len(entries)
        if following < self._ledger.size():
            answer.next_index = following
        return answer

    async def GetCheckpoint(
        self, caller: Caller, request: pb.LedgerServiceGetCheckpointRequest
    ) -> pb.LedgerServiceGetCheckpointResponse:
        """The newest."""
        return pb.LedgerServiceGetCheckpointResponse(checkpoint=(await self._ledger.checkpoint()).note)

    async def GetInclusionProof(
        self, caller: Caller, request: pb.LedgerServiceGetInclusionProofRequest
    ) -> pb.LedgerServiceGetInclusionProofResponse:
        """Under the newest checkpoint."""
        signed = await self._ledger.checkpoint()
        if request.tree_size not in (0, signed.head.size):
            raise InvalidArgument.field("tree_size", f"must be 0 or the newest checkpoint's size, {signed.head.size}")
        if request.index >= signed.head.size:
            raise InvalidArgument.field("index", f"is not in the tree of {signed.head.size} records")
        proof = await self._ledger.proof(request.index, signed)
        return pb.LedgerServiceGetInclusionProofResponse(tlog_proof=proof.text())

    async def GetConsistencyProof(
        self, caller: Caller, request: pb.LedgerServiceGetConsistencyProofRequest
    ) -> pb.LedgerServiceGetConsistencyProofResponse:
        """Between two sizes, with the newest checkpoint beside it."""
        signed = await self._ledger.checkpoint()
        old, new = request.old_size, request.new_size or signed.head.size
        if not 0 < old <= new:
            raise InvalidArgument.field("old_size", f"must be more than 0 and at most {new}")
        if new > signed.head.size:
            raise InvalidArgument.field("new_size", f"exceeds the tree size of {signed.head.size}")
        hashes = await self._ledger.consistency(old, new)
        return pb.LedgerServiceGetConsistencyProofResponse(hashes=hashes, checkpoint=signed.note)

    async def GetReceipt(
        self, caller: Caller, request: pb.LedgerServiceGetReceiptRequest
    ) -> pb.LedgerServiceGetReceiptResponse:
        """The receipt as Execute returned it."""
        execution_id = convert.identifier("execution_id", request.execution_id)
        outcome, _ = await self._executions.get(caller.view, caller.principal, execution_id=execution_id)
        if not outcome.receipt_dsse:
            why = outcome.no_receipt_reason or f"the execution is {outcome.state}"
            raise FailedPrecondition(
                Reason.NO_RECEIPT,
                f"there is no receipt: {why}",
                executed=outcome.executed,
                consumed=outcome.consumed,
                execution_id=execution_id,
                next_step="an execution gets its receipt at its end: watch it until it is closed",
            )
        return pb.LedgerServiceGetReceiptResponse(receipt_dsse=outcome.receipt_dsse, tlog_proof=outcome.receipt_proof)

    async def _read_execution(
        self, caller: Caller, execution_id: str, first: int, limit: int
    ) -> pb.LedgerServiceReadResponse:
        wanted = convert.identifier("execution_id", execution_id)
        outcome, _ = await self._executions.get(caller.view, caller.principal, execution_id=wanted)
        refused = rows.under(rows.LinkRow, "refusal", wanted)
        prefixes: list[rows.RowKey[rows.Row]] = [rows.execution(wanted), rows.receipt(wanted), refused]
        if outcome.approval_id:
            prefixes.append(rows.approval(outcome.approval_id))
        entries = [entry for entry in await self._ledger.read_rows(*prefixes) if entry.index >= first]
        leaves = answers.leaves((entry.index, entry.leaf) for entry in entries[:limit])
        answer = pb.LedgerServiceReadResponse(leaves=leaves)
        if len(leaves) < len(entries):
            answer.next_index = entries[len(leaves)].index
        return answer

    async def _visible(self, caller: Caller, entries: Sequence[Entry]) -> Entries:
        """Records of executions that the caller may see; records without an execution only for a caller who may see
        everything."""
        if caller.view.shows("", ""):
            return list(entries)
        known: dict[str, bool] = {"": False}
        visible = []
        for entry in entries:
            execution_id = envelope(entry.leaf).execution
            if execution_id not in known:
                known[execution_id] = await self._executions.shows(caller.view, execution_id)
            if known[execution_id]:
                visible.append(entry)
        return visible


def _size(entries: Sequence[Entry]) -> int:
    return sum(len(entry.leaf) for entry in entries)
