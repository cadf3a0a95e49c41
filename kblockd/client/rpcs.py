"""Each RPC as a value: path, request, how to read the response, how long to wait, and what a lost answer means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from kblockd._proto.kblock.v1 import approval_service_pb2 as approvals_pb
from kblockd._proto.kblock.v1 import execution_service_pb2 as executions_pb
from kblockd._proto.kblock.v1 import ledger_service_pb2 as ledger_pb
from kblockd.client import messages
from kblockd.client.answers import Answer, ConsistencyProof, Leaves, Page, SignedDecision, SignedReceipt, Story
from kblockd.client.calls import Call
from kblockd.domain.outcome import ApprovalView, Finding, Revocation

T = TypeVar("T")
READ_SECONDS: Final = 30.0
_FINDINGS: Final = {
    Finding.PRESENT: executions_pb.FINDING_EFFECT_PRESENT,
    Finding.ABSENT: executions_pb.FINDING_EFFECT_ABSENT,
    Finding.UNPROVABLE: executions_pb.FINDING_UNPROVABLE,
}
_VERDICTS: Final = {"approve": approvals_pb.VERDICT_APPROVE, "deny": approvals_pb.VERDICT_DENY}


@dataclass(frozen=True, slots=True)
class Rpc(Generic[T]):
    """``timeout`` in seconds, None for no limit; ``effect``: without an answer it is unknown what the daemon did."""

    path: str
    request: Message
    response: type[Message]
    read: Callable[[Any], T]
    timeout: float | None = READ_SECONDS
    effect: bool = False
    call: Call | None = None


def execute(call: Call, *, wait: float, margin: float) -> Rpc[Answer]:
    """The daemon waits ``wait`` seconds and the client ``margin`` longer, so the daemon answers first (R184, R185)."""
    request = executions_pb.ExecutionServiceExecuteRequest(envelope=messages.envelope(call.envelope))
    request.wait.CopyFrom(messages.seconds(wait))

    def read(response: executions_pb.ExecutionServiceExecuteResponse) -> Answer:
        return messages.read_outcome(response.outcome, call)

    response = executions_pb.ExecutionServiceExecuteResponse
    return Rpc(_execution("Execute"), request, response, read, wait + margin, True, call)


def get(*, execution_id: str = "", caller_key: str = "") -> Rpc[Story]:
    """By exactly one of the two; raises ValueError otherwise."""
    if bool(execution_id) == bool(caller_key):
        raise ValueError("give execution_id or caller_key, and not both")
    by = {"execution_id": execution_id} if execution_id else {"caller_key": caller_key}
    request = executions_pb.ExecutionServiceGetRequest(**by)

    def read(response: executions_pb.ExecutionServiceGetResponse) -> Story:
        events = tuple(map(messages.read_event, response.events))
        return Story(messages.read_outcome(response.outcome, None), events)

    return Rpc(_execution("Get"), request, executions_pb.ExecutionServiceGetResponse, read)


def list_executions(states: Sequence[str], page_size: int, page_token: str) -> Rpc[Page[Answer]]:
    """A page, newest first."""
    request = executions_pb.ExecutionServiceListRequest(page_size=page_size, page_token=page_token, states=states)

    def read(response: executions_pb.ExecutionServiceListResponse) -> Page[Answer]:
        items = tuple(messages.read_outcome(outcome, None) for outcome in response.outcomes)
        return Page(items, response.next_page_token)

    return Rpc(_execution("List"), request, executions_pb.ExecutionServiceListResponse, read)


def watch(execution_id: str, after_index: int) -> Rpc[Any]:
    """A stream of events, without a time limit."""
    request = executions_pb.ExecutionServiceWatchRequest(execution_id=execution_id, after_index=after_index)
    response = executions_pb.ExecutionServiceWatchResponse
    return Rpc(_execution("Watch"), request, response, lambda answer: messages.read_event(answer.event), None)


def resolve(execution_id: str, finding: Finding, reason: str) -> Rpc[Answer]:
    """Closes a held execution with an operator's finding."""
    request = executions_pb.ExecutionServiceResolveRequest(
        execution_id=execution_id, finding=_FINDINGS[finding], reason=reason
    )

    def read(response: executions_pb.ExecutionServiceResolveResponse) -> Answer:
        return messages.read_outcome(response.outcome, None)

    response = executions_pb.ExecutionServiceResolveResponse
    return Rpc(_execution("Resolve"), request, response, read, effect=True)


def approval(approval_id: str) -> Rpc[ApprovalView]:
    """Everything that an approver is shown."""
    request = approvals_pb.ApprovalServiceGetRequest(approval_id=approval_id)
    response = approvals_pb.ApprovalServiceGetResponse
    return Rpc(_approval("Get"), request, response, lambda answer: messages.read_approval(answer.approval))


def list_approvals(states: Sequence[str], page_size: int, page_token: str) -> Rpc[Page[ApprovalView]]:
    """A page, newest first."""
    request = approvals_pb.ApprovalServiceListRequest(page_size=page_size, page_token=page_token, states=states)

    def read(response: approvals_pb.ApprovalServiceListResponse) -> Page[ApprovalView]:
        return Page(tuple(map(messages.read_approval, response.approvals)), response.next_page_token)

    return Rpc(_approval("List"), request, approvals_pb.ApprovalServiceListResponse, read)


def decide(
    approval_id: str, action_sha256: str, presented_sha256: str, verdict: str, reason: str
) -> Rpc[SignedDecision]:
    """``verdict`` is approve or deny; raises ValueError for anything else."""
    if verdict not in _VERDICTS:
        raise ValueError(f"verdict: {verdict!r} is neither approve nor deny")
    request = approvals_pb.ApprovalServiceDecideRequest(
        approval_id=approval_id,
        action_sha256=action_sha256,
        presented_sha256=presented_sha256,
        verdict=_VERDICTS[verdict],
        reason=reason,
    )

    def read(response: approvals_pb.ApprovalServiceDecideResponse) -> SignedDecision:
        return SignedDecision(messages.read_approval(response.approval), response.approval_dsse)

    return Rpc(_approval("Decide"), request, approvals_pb.ApprovalServiceDecideResponse, read, effect=True)


def revoke(approval_id: str, reason: str) -> Rpc[Revocation]:
    """Revokes an approval before its use."""
    request = approvals_pb.ApprovalServiceRevokeRequest(approval_id=approval_id, reason=reason)

    def read(response: approvals_pb.ApprovalServiceRevokeResponse) -> Revocation:
        return Revocation(response.approval_id, response.execution_id, response.ledger_index)

    return Rpc(_approval("Revoke"), request, approvals_pb.ApprovalServiceRevokeResponse, read, effect=True)


def read_ledger(from_index: int, limit: int, execution_id: str) -> Rpc[Leaves]:
    """Records in order."""
    request = ledger_pb.LedgerServiceReadRequest(from_index=from_index, limit=limit, execution_id=execution_id)

    def read(response: ledger_pb.LedgerServiceReadResponse) -> Leaves:
        following = response.next_index if response.HasField("next_index") else None
        return Leaves(tuple((leaf.index, leaf.leaf) for leaf in response.leaves), following)

    return Rpc(_ledger("Read"), request, ledger_pb.LedgerServiceReadResponse, read)


def checkpoint() -> Rpc[str]:
    """The newest signed tree head."""
    request, response = ledger_pb.LedgerServiceGetCheckpointRequest(), ledger_pb.LedgerServiceGetCheckpointResponse
    return Rpc(_ledger("GetCheckpoint"), request, response, lambda answer: str(answer.checkpoint))


def inclusion_proof(index: int, tree_size: int) -> Rpc[str]:
    """A tlog-proof."""
    request = ledger_pb.LedgerServiceGetInclusionProofRequest(index=index, tree_size=tree_size)
    response = ledger_pb.LedgerServiceGetInclusionProofResponse
    return Rpc(_ledger("GetInclusionProof"), request, response, lambda answer: str(answer.tlog_proof))


def consistency_proof(old_size: int, new_size: int) -> Rpc[ConsistencyProof]:
    """Between two sizes."""
    request = ledger_pb.LedgerServiceGetConsistencyProofRequest(old_size=old_size, new_size=new_size)
    response = ledger_pb.LedgerServiceGetConsistencyProofResponse

    def read(answer: ledger_pb.LedgerServiceGetConsistencyProofResponse) -> ConsistencyProof:
        return ConsistencyProof(tuple(answer.hashes), answer.checkpoint)

    return Rpc(_ledger("GetConsistencyProof"), request, response, read)


def receipt(execution_id: str) -> Rpc[SignedReceipt]:
    """The receipt of a closed execution."""
    request = ledger_pb.LedgerServiceGetReceiptRequest(execution_id=execution_id)

    def read(answer: ledger_pb.LedgerServiceGetReceiptResponse) -> SignedReceipt:
        return SignedReceipt(answer.receipt_dsse, answer.tlog_proof)

    return Rpc(_ledger("GetReceipt"), request, ledger_pb.LedgerServiceGetReceiptResponse, read)


def _execution(method: str) -> str:
    return f"/kblock.v1.ExecutionService/{method}"


def _approval(method: str) -> str:
    return f"/kblock.v1.ApprovalService/{method}"


def _ledger(method: str) -> str:
    return f"/kblock.v1.LedgerService/{method}"
