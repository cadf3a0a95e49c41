"""The RPCs and types of PolicyService: answers of the policy in force, the rules behind them, and its origin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kblockd._proto.kblock.v1 import policy_service_pb2 as pb
from kblockd.client.rpcs import Rpc
from kblockd.domain.canonical import canonical, reparse

CHECK_SECONDS: Final = 60.0
"""A bundle is checked and loaded before the answer."""


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """An entry point's answer for one input; non-binding and not recorded."""

    result: Mapping[str, Any]
    engine: str
    revision: str
    decision_id: str
    input_sha256: str
    took_microseconds: int


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule that fired. ``kind``: rule, else, default or value (without a condition)."""

    file: str
    line: int
    column: int
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class PolicyRuling:
    """A decision after the approval floor: ``count`` owners, each with one of ``roles`` and one of ``floor_roles``
    (empty: any). ``raised`` says how approval_floor changed the policy's decision, "" if it did not."""

    effect: str
    count: int
    roles: tuple[str, ...]
    floor_roles: tuple[str, ...]
    raised: str


@dataclass(frozen=True, slots=True)
class PolicyExplanation:
    """``answer`` is None if the policy gives none: ``failure`` (POLICY_UNDEFINED, …) says why the daemon would deny.

    ``ruling`` is None unless the entry point is the decision and it was given.
    """

    answer: PolicyAnswer | None
    failure: str
    failure_message: str
    rules: tuple[PolicyRule, ...]
    revision: str
    ruling: PolicyRuling | None = None


@dataclass(frozen=True, slots=True)
class PolicyActivation:
    """The activation of the policy in force; ``signer`` is empty if the bundle is unsigned."""

    revision: str
    since: dt.datetime
    ledger_index: int
    tests: int
    bundle_sha256: str
    bundle_revision: str
    signer: str


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """``last_error`` says why the newest bundle was refused, "" while it is in force."""

    engine: str
    revision: str
    ready: bool
    last_error: str
    activation: PolicyActivation | None


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """A question that the candidate answered differently; the last two say what follows from each answer.

    ``execution_id`` is empty for a question about none."""

    at: dt.datetime
    execution_id: str
    entrypoint: str
    revision: str
    decision_id: str
    in_force: str
    candidate: str


@dataclass(frozen=True, slots=True)
class PolicyCandidate:
    """A revision that is compared with the one in force, and its questions so far by their outcome.

    ``failed`` are those of ``changed`` that it did not decide, ``skipped`` those that it was not asked."""

    revision: str
    since: dt.datetime
    tests: int
    same: int
    changed: int
    other_reasons: int
    failed: int
    skipped: int
    differences: tuple[PolicyDifference, ...] = ()


def evaluate(entrypoint: str, document: Mapping[str, Any]) -> Rpc[PolicyAnswer]:
    """Raises ``NotCanonical`` (a ValueError) for an input without a canonical form."""
    request = pb.PolicyServiceEvaluateRequest(entrypoint=entrypoint, input_json=canonical(dict(document)))

    def read(response: pb.PolicyServiceEvaluateResponse) -> PolicyAnswer:
        return _answer(response.decision)

    return Rpc(_path("Evaluate"), request, pb.PolicyServiceEvaluateResponse, read)


def explain(entrypoint: str, document: Mapping[str, Any]) -> Rpc[PolicyExplanation]:
    """As ``evaluate``."""
    request = pb.PolicyServiceExplainRequest(entrypoint=entrypoint, input_json=canonical(dict(document)))

    def read(response: pb.PolicyServiceExplainResponse) -> PolicyExplanation:
        answer = _answer(response.decision) if response.HasField("decision") else None
        rules = tuple(PolicyRule(r.file, r.line, r.column, r.name, r.kind) for r in response.rules)
        ruling = _ruling(response.ruling) if response.HasField("ruling") else None
        return PolicyExplanation(answer, response.failure, response.failure_message, rules, response.revision, ruling)

    return Rpc(_path("Explain"), request, pb.PolicyServiceExplainResponse, read)


def status() -> Rpc[PolicyInForce]:
    """Which revision decides."""

    def read(response: pb.PolicyServiceGetStatusResponse) -> PolicyInForce:
        activation = _activation(response.activation) if response.HasField("activation") else None
        return PolicyInForce(response.engine, response.revision, response.ready, response.last_error, activation)

    return Rpc(_path("GetStatus"), pb.PolicyServiceGetStatusRequest(), pb.PolicyServiceGetStatusResponse, read)


def set_candidate(archive: bytes) -> Rpc[PolicyCandidate]:
    """``archive``: a ``.tar.gz``."""

    def read(response: pb.PolicyServiceSetCandidateResponse) -> PolicyCandidate:
        return _candidate(response.candidate)

    request = pb.PolicyServiceSetCandidateRequest(bundle=archive)
    return Rpc(_path("SetCandidate"), request, pb.PolicyServiceSetCandidateResponse, read, timeout=CHECK_SECONDS)


def candidate() -> Rpc[PolicyCandidate | None]:
    """With its differences."""

    def read(response: pb.PolicyServiceGetCandidateResponse) -> PolicyCandidate | None:
        differences = tuple(map(_difference, response.differences))
        return _candidate(response.candidate, differences) if response.HasField("candidate") else None

    return Rpc(_path("GetCandidate"), pb.PolicyServiceGetCandidateRequest(), pb.PolicyServiceGetCandidateResponse, read)


def clear_candidate() -> Rpc[PolicyCandidate | None]:
    """With its final counts."""

    def read(response: pb.PolicyServiceClearCandidateResponse) -> PolicyCandidate | None:
        return _candidate(response.candidate) if response.HasField("candidate") else None

    request = pb.PolicyServiceClearCandidateRequest()
    return Rpc(_path("ClearCandidate"), request, pb.PolicyServiceClearCandidateResponse, read)


def _candidate(message: pb.PolicyCandidate, differences: tuple[PolicyDifference, ...] = ()) -> PolicyCandidate:
    return PolicyCandidate(
        message.revision,
        message.since.ToDatetime(tzinfo=dt.UTC),
        message.tests,
        message.same,
        message.changed,
        message.other_reasons,
        message.failed,
        message.skipped,
        differences,
    )


def _difference(message: pb.PolicyDifference) -> PolicyDifference:
    return PolicyDifference(
        message.at.ToDatetime(tzinfo=dt.UTC),
        message.execution_id,
        message.entrypoint,
        message.revision,
        message.decision_id,
        message.in_force,
        message.candidate,
    )


def _ruling(message: pb.PolicyRuling) -> PolicyRuling:
    roles, floor_roles = tuple(message.roles), tuple(message.floor_roles)
    return PolicyRuling(message.effect, message.count, roles, floor_roles, message.raised)


def _answer(message: pb.PolicyDecision) -> PolicyAnswer:
    return PolicyAnswer(
        reparse(message.result_json),
        message.engine,
        message.revision,
        message.decision_id,
        message.input_sha256,
        message.took.ToMicroseconds(),
    )


def _activation(message: pb.PolicyActivation) -> PolicyActivation:
    return PolicyActivation(
        message.revision,
        message.since.ToDatetime(tzinfo=dt.UTC),
        message.ledger_index,
        message.tests,
        message.bundle_sha256,
        message.bundle_revision,
        message.signer,
    )


def _path(method: str) -> str:
    return f"/kblock.v1.PolicyService/{method}"
