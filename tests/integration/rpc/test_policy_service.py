"""``PolicyService`` where the policy gives no answer, and where the question is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import aio

from kblockd._proto.kblock.v1 import policy_service_pb2 as pb
from kblockd._proto.kblock.v1 import policy_service_pb2_grpc as pb_grpc
from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.candidate import CandidateDifference
from kblockd.rpc.services.policy import MAX_INPUT
from tests.integration.rpc.test_surface import refused
from tests.unit.rpc.fakes import Daemon, running

DECISION = "kblock/decision/result"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
async def stub(daemon: Daemon) -> AsyncIterator[pb_grpc.PolicyServiceAsyncStub]:
    async with aio.insecure_channel(daemon.target("operator")) as channel:
        stub = pb_grpc.PolicyServiceStub(channel)
        await stub.GetStatus(pb.PolicyServiceGetStatusRequest())  # authorised from here on
        await stub.Evaluate(pb.PolicyServiceEvaluateRequest(entrypoint=DECISION, input_json=b"{}"))
        await stub.Explain(pb.PolicyServiceExplainRequest(entrypoint=DECISION, input_json=b"{}"))
        yield stub


@pytest.mark.parametrize("reason", ["POLICY_UNDEFINED", "POLICY_TYPE", "POLICY_ERROR", "POLICY_TIMEOUT", "POLICY_DOWN"])
async def test_pol_01_no_answer_is_unavailable_and_explained(
    daemon: Daemon, stub: pb_grpc.PolicyServiceAsyncStub, reason: str
) -> None:
    """Evaluate fails as a call would; Explain says why, and which rules came to nothing."""
    daemon.engine.failure = PolicyFailure(Reason(reason), "there is no rule")
    with refused("FAILED_PRECONDITION" if reason == "POLICY_ERROR" else "UNAVAILABLE", reason):
        await stub.Evaluate(pb.PolicyServiceEvaluateRequest(entrypoint=DECISION, input_json=b"{}"))
    explained = await stub.Explain(pb.PolicyServiceExplainRequest(entrypoint=DECISION, input_json=b"{}"))
    assert (explained.failure, explained.failure_message) == (reason, "there is no rule")
    assert not explained.HasField("decision")
    assert [rule.kind for rule in explained.rules] == ["default"]


@pytest.mark.parametrize(
    ("field", "entrypoint", "text"),
    [
        ("entrypoint", "", b"{}"),
        ("entrypoint", "system/authz", b"{}"),
        ("entrypoint", "kblock/decision/result#x", b"{}"),
        ("input_json", DECISION, b""),
        ("input_json", DECISION, b"[]"),
        ("input_json", DECISION, b'{"now": "a", "now": "b"}'),
        ("input_json", DECISION, b'{"amount": 9007199254740993}'),
        ("input_json", DECISION, b'{"memo": "' + b"x" * MAX_INPUT + b'"}'),
    ],
)
async def test_pol_08_a_question_that_is_none_is_not_asked(
    daemon: Daemon, stub: pb_grpc.PolicyServiceAsyncStub, field: str, entrypoint: str, text: bytes
) -> None:
    """POL-08: as strict as the arguments of a call; a number is never rounded."""
    asked = len(daemon.engine.asked)
    for call in (
        stub.Evaluate(pb.PolicyServiceEvaluateRequest(entrypoint=entrypoint, input_json=text)),
        stub.Explain(pb.PolicyServiceExplainRequest(entrypoint=entrypoint, input_json=text)),
    ):
        with refused("INVALID_ARGUMENT", "INVALID_FIELD") as caught:
            await call
        assert caught.fields.keys() == {field}
    assert len(daemon.engine.asked) == asked


async def test_the_status_of_a_policy_that_was_never_activated(
    daemon: Daemon, stub: pb_grpc.PolicyServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none to tell of; the rest is answered."""
    policies = daemon.server._services[-1][0]._policies  # type: ignore[attr-defined]  # a service

    async def none() -> None:
        return None

    monkeypatch.setattr(policies, "activation", none, raising=False)
    daemon.engine.ready = False
    status = await stub.GetStatus(pb.PolicyServiceGetStatusRequest())
    assert not status.HasField("activation")
    assert (status.engine, status.ready) == ("fake", False)


async def test_differences_of_other_tenants_are_not_shown(daemon: Daemon, stub: pb_grpc.PolicyServiceAsyncStub) -> None:
    """The filter of stage 0 holds for the calls that a candidate was compared on, too, and for their counts: one that
    decides otherwise for a call of somebody else would tell its author about it."""
    at = "2026-11-29T12:00:00.000000Z"
    daemon.engine.result = {"allow": True, "tenants": ["acme"], "agents": ["*"], "reasons": []}
    daemon.candidates.differences = tuple(
        CandidateDifference(
            at, tenant, "local:agent", f"exec_{tenant}", DECISION, "r1", "decision_1", "effect=allow []", ""
        )
        for tenant in ("acme", "other")
    )
    assert not (await stub.GetCandidate(pb.PolicyServiceGetCandidateRequest())).HasField("candidate")
    made = await stub.SetCandidate(pb.PolicyServiceSetCandidateRequest(bundle=b"x"))
    assert (made.candidate.revision, made.candidate.changed, made.candidate.skipped) == ("candidate", 1, 3)
    shown = await stub.GetCandidate(pb.PolicyServiceGetCandidateRequest())
    assert [each.execution_id for each in shown.differences] == ["exec_acme"]
    assert (shown.candidate.same, shown.candidate.changed) == (5, 1)
    cleared = await stub.ClearCandidate(pb.PolicyServiceClearCandidateRequest())
    assert (cleared.candidate.revision, cleared.candidate.changed) == ("candidate", 1)
    with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
        await stub.SetCandidate(pb.PolicyServiceSetCandidateRequest(bundle=b"broken"))
