"""``kblock.v1.PolicyService``: queries to the policy in force, without consequences."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kblockd._proto.kblock.v1 import policy_service_pb2 as pb
from kblockd.admission.offload import offload
from kblockd.domain import canonical
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import InvalidArgument
from kblockd.domain.ledger.rows import PolicyRow
from kblockd.policy.engine import Decision
from kblockd.policy.entrypoints import ENTRYPOINTS
from kblockd.policy.floor import Ruling
from kblockd.rpc import answers
from kblockd.rpc.identity import Caller
from kblockd.rpc.services.facades import PoliciesApi

MAX_INPUT: Final = canonical.MAX_BYTES
MAX_MESSAGE: Final = 1000


class PolicyService:
    """``kblock.authz`` controls access, because arbitrary queries reveal the policy's limits."""

    def __init__(self, policies: PoliciesApi) -> None:
        self._policies = policies

    async def Evaluate(
        self, caller: Caller, request: pb.PolicyServiceEvaluateRequest
    ) -> pb.PolicyServiceEvaluateResponse:
        """Executes and records nothing."""
        decision = await self._policies.evaluate(*await _question(request))
        return pb.PolicyServiceEvaluateResponse(decision=_decision(decision))

    async def Explain(self, caller: Caller, request: pb.PolicyServiceExplainRequest) -> pb.PolicyServiceExplainResponse:
        """As Evaluate, with the rules that fired; a policy failure is part of the answer here."""
        explanation = await self._policies.explain(*await _question(request))
        answer = pb.PolicyServiceExplainResponse(revision=explanation.revision)
        if explanation.decision is not None:
            answer.decision.CopyFrom(_decision(explanation.decision))
        if explanation.failure is not None:
            answer.failure = str(explanation.failure.reason)
            answer.failure_message = explanation.failure.message[:MAX_MESSAGE]
        if explanation.ruling is not None:
            answer.ruling.CopyFrom(_ruling(explanation.ruling))
        for rule in explanation.rules:
            answer.rules.add(file=rule.file, line=rule.line, column=rule.column, name=rule.name, kind=rule.kind)
        return answer

    async def GetStatus(
        self, caller: Caller, request: pb.PolicyServiceGetStatusRequest
    ) -> pb.PolicyServiceGetStatusResponse:
        """The policy in force and its recorded activation."""
        status = self._policies.status()
        answer = pb.PolicyServiceGetStatusResponse(
            engine=status.engine,
            revision=status.revision,
            ready=status.ready,
            last_error=status.last_error[:MAX_MESSAGE],
        )
        if (activation := await self._policies.activation()) is not None:
            answer.activation.CopyFrom(_activation(*activation))
        return answer


async def _question(
    request: pb.PolicyServiceEvaluateRequest | pb.PolicyServiceExplainRequest,
) -> tuple[str, Mapping[str, Any]]:
    if request.entrypoint not in ENTRYPOINTS:
        raise InvalidArgument.field("entrypoint", f"must be one of {', '.join(ENTRYPOINTS)}")
    try:
        text = request.input_json
        document: Mapping[str, Any] = await offload(len(text), partial(canonical.parse, text, max_bytes=MAX_INPUT))
    except canonical.NotCanonical as error:
        raise InvalidArgument.field("input_json", str(error)) from None
    return request.entrypoint, document


def _decision(decision: Decision) -> pb.PolicyDecision:
    return pb.PolicyDecision(
        result_json=canonical.canonical(decision.result),
        engine=decision.engine,
        revision=decision.revision,
        decision_id=decision.decision_id,
        input_sha256=decision.input_sha256,
        took=answers.microseconds(decision.microseconds),
    )


def _ruling(ruling: Ruling) -> pb.PolicyRuling:
    effect = ruling.stands
    asks = effect.effect == "require_approval"
    return pb.PolicyRuling(
        effect=effect.effect,
        count=effect.count if asks else 0,
        roles=effect.roles if asks else (),
        floor_roles=effect.floor_roles,
        raised=ruling.words(),
    )


def _activation(index: int, row: PolicyRow) -> pb.PolicyActivation:
    return pb.PolicyActivation(
        revision=row.revision,
        since=answers.moment(parse_rfc3339(row.at)),
        ledger_index=index,
        tests=row.tests,
        bundle_sha256=row.bundle_sha256,
        bundle_revision=row.bundle_revision,
        signer=row.signer,
    )
