"""``kblock.v1.ApprovalService``."""

from __future__ import annotations

from kblockd._proto.kblock.v1 import approval_service_pb2 as pb
from kblockd.rpc import answers, convert
from kblockd.rpc.identity import Caller
from kblockd.rpc.services.facades import ApprovalsApi

_STATES = frozenset({"pending", "approved", "denied", "expired", "revoked", "used", "void"})


class ApprovalService:
    """Whoever approves or revokes is always the authenticated caller (APR-08)."""

    def __init__(self, approvals: ApprovalsApi) -> None:
        self._approvals = approvals

    async def Get(self, caller: Caller, request: pb.ApprovalServiceGetRequest) -> pb.ApprovalServiceGetResponse:
        """Everything that an approver is shown."""
        approval_id = convert.identifier("approval_id", request.approval_id)
        view = await self._approvals.get(caller.view, approval_id)
        return pb.ApprovalServiceGetResponse(approval=answers.approval(view))

    async def List(self, caller: Caller, request: pb.ApprovalServiceListRequest) -> pb.ApprovalServiceListResponse:
        """Newest first."""
        views, token = await self._approvals.list(
            caller.view,
            page_size=convert.page_size(request.page_size),
            page_token=convert.page_token(request.page_token),
            states=convert.states(request.states, _STATES),
        )
        return pb.ApprovalServiceListResponse(approvals=map(answers.listed_approval, views), next_page_token=token)

    async def Decide(
        self, caller: Caller, request: pb.ApprovalServiceDecideRequest
    ) -> pb.ApprovalServiceDecideResponse:
        """Both digests identify what the approver was shown; a missing one is refused here, a wrong one by the
        approvals service."""
        view, signed = await self._approvals.decide(
            caller.principal,
            caller.view,
            convert.identifier("approval_id", request.approval_id),
            action_sha256=convert.digest("action_sha256", request.action_sha256),
            presented_sha256=convert.digest("presented_sha256", request.presented_sha256),
            verdict=convert.verdict(request.verdict),
            reason=convert.reason("reason", request.reason, required=False),
        )
        return pb.ApprovalServiceDecideResponse(approval=answers.approval(view), approval_dsse=signed)

    async def Revoke(
        self, caller: Caller, request: pb.ApprovalServiceRevokeRequest
    ) -> pb.ApprovalServiceRevokeResponse:
        """Before the use; needs no digests, because it agrees to nothing."""
        revoked = await self._approvals.revoke(
            caller.principal,
            caller.view,
            convert.identifier("approval_id", request.approval_id),
            reason=convert.reason("reason", request.reason, required=True),
        )
        return pb.ApprovalServiceRevokeResponse(
            approval_id=revoked.approval_id, execution_id=revoked.execution_id, ledger_index=revoked.ledger_index
        )
