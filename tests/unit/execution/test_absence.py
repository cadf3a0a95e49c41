"""The ways in which an absence is known, and everything beside them that is not one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kblockd.domain.contract import ActionContract, parse, parse_stored
from kblockd.execution import absence
from kblockd.execution.absence import Finality, Proof
from kblockd.execution.classify import outcome_code
from kblockd.execution.late import LateOutcomes
from kblockd.upstream.adapter import Facts, Outcome, Sent
from tests.harness import refund_contract

PROBLEM = "application/problem+json"
BODY = {"in": "body", "media_type": PROBLEM, "has": "/code", "code": "/code"}
OWN = Outcome(Sent.ANSWERED, {"code": "no_funds"}, is_error=True, facts=Facts(True, "body", 422, PROBLEM))
RESULT = {"in": "tool_result", "schema": {"type": "object", "required": ["refused"]}}
RPC = {"in": "rpc_error", "has": "/data/refused"}


def contract(errors: dict[str, Any], *, effect_free: bool = False, **codes: Any) -> ActionContract:
    return parse(refund_contract({"tool": {"errors_are_effect_free": effect_free, "errors": {**errors, **codes}}}))


def test_ups_06_the_tools_own_error_proves_what_the_contract_says() -> None:
    """Nothing without a word of the contract; then which of the ways it was."""
    assert absence.proof(OWN, parse(refund_contract())) is Proof.NONE
    assert absence.proof(OWN, contract(BODY)) is Proof.NONE
    assert absence.proof(OWN, contract(BODY, effect_free=True)) is Proof.EFFECT_FREE
    assert absence.proof(OWN, contract(BODY, rejected_before_work=[422])) is Proof.REJECTED
    assert absence.proof(OWN, contract(BODY, rejected_before_work=["no_funds"])) is Proof.REJECTED
    assert absence.proof(OWN, contract(BODY, rejected_before_work=[409, "closed"])) is Proof.NONE


FOREIGN: dict[str, Outcome] = {
    "another media type": replace(OWN, facts=Facts(True, "body", 422, "application/json")),
    "no media type": replace(OWN, facts=Facts(True, "body", 422)),
    "a page": replace(OWN, output=None, facts=Facts(True, "body", 422, "text/html")),
    "a gateway's JSON": replace(OWN, output={"message": "Forbidden"}),
    "null at the place": replace(OWN, output={"code": None}),
    "no object": replace(OWN, output=["code"]),
    "could not be kept": replace(OWN, output=None, code="RESULT_NOT_STORABLE"),
    "not of this request": replace(OWN, facts=replace(OWN.facts, answers_request=False)),
    "another form": replace(OWN, facts=replace(OWN.facts, form="tool_result")),
    "no facts": replace(OWN, facts=Facts()),
    "no status": replace(OWN, facts=replace(OWN.facts, status=None)),
    "lost": replace(OWN, sent=Sent.LOST),
    "no error": replace(OWN, is_error=False),
    **{f"status {n}": replace(OWN, facts=replace(OWN.facts, status=n)) for n in (101, 302, 407, 408, *range(500, 600))},
    "status 600": replace(OWN, facts=replace(OWN.facts, status=600)),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_ups_04_ups_05_ups_06_what_is_not_the_tools_own_proves_nothing(case: str) -> None:
    """Whatever the contract says of the tool's own errors, and a 5xx is never one."""
    for found in (contract(BODY, effect_free=True), contract(BODY, rejected_before_work=[422, "no_funds"])):
        assert absence.proof(FOREIGN[case], found) is Proof.NONE
        assert not absence.in_progress(FOREIGN[case], contract(BODY, in_progress=[422, "no_funds"]))


def test_ups_01_a_tool_result_and_a_json_rpc_error_are_two_forms() -> None:
    """MCP: an error of the library never passes for one of the tool, nor the other way round."""
    of_tool = Outcome(Sent.ANSWERED, {"refused": "x"}, is_error=True, facts=Facts(True, "tool_result", 200))
    of_library = Outcome(
        Sent.ANSWERED,
        {"code": -32602, "message": "Unknown tool: refund", "data": {"refused": 1}},
        is_error=True,
        facts=Facts(True, "rpc_error", 200, "application/json", -32602),
    )
    assert absence.proof(of_tool, contract(RESULT, effect_free=True)) is Proof.EFFECT_FREE
    assert absence.proof(of_library, contract(RESULT, effect_free=True)) is Proof.NONE
    assert absence.proof(of_tool, contract(RPC, effect_free=True)) is Proof.NONE
    assert absence.proof(of_library, contract(RPC, rejected_before_work=[-32602])) is Proof.REJECTED
    assert absence.proof(of_library, contract(RPC, rejected_before_work=[-32601])) is Proof.NONE
    unshaped = replace(of_library, output={"code": -32602, "message": "Unknown tool: refund"})
    assert absence.proof(unshaped, contract(RPC, rejected_before_work=[-32602])) is Proof.NONE


@pytest.mark.parametrize("code", [-32603, -32700, -32000, -32001])
def test_ups_05_a_crash_of_json_rpc_is_a_5xx(code: int) -> None:
    """Neither effect-free nor to be listed."""
    facts = Facts(True, "rpc_error", 200, "application/json", code)
    outcome = Outcome(Sent.ANSWERED, {"code": code, "data": {"refused": 1}}, is_error=True, facts=facts)
    assert absence.proof(outcome, contract(RPC, effect_free=True)) is Proof.NONE


def test_in_progress_is_no_absence_whatever_else_is_declared() -> None:
    """``in_progress: [409]``: an earlier attempt arrived and goes on; look up again, no attempt."""
    busy = replace(OWN, output={"code": "busy"}, facts=replace(OWN.facts, status=409), code="HTTP_409")
    found = contract(BODY, effect_free=True, in_progress=[409], rejected_before_work=["busy"])
    assert (absence.proof(busy, found), absence.at_work(busy, found)) == (Proof.NONE, True)
    assert outcome_code(busy, found) == "IN_PROGRESS"
    assert absence.proof(OWN, found) is Proof.EFFECT_FREE
    assert not absence.at_work(OWN, found)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Sent.ACCEPTED, operation="op-1"),
        Outcome(Sent.LOST, code="TASK_UNSUPPORTED", facts=Facts(at_work=True)),
        Outcome(Sent.LOST, code="OPERATION_MISSING", facts=Facts(at_work=True)),
    ],
    ids=lambda outcome: outcome.code,
)
def test_an_answer_that_says_that_the_work_goes_on_is_believed(outcome: Outcome) -> None:
    """It could only be a lie on the safe side."""
    assert absence.at_work(outcome, parse(refund_contract()))


def test_a_stored_contract_without_a_shape_proves_nothing_by_its_errors() -> None:
    """UPG-02: an execution of an older version goes on under the contract that it started with, in its safe meaning."""
    old = refund_contract({"tool": {"errors_are_effect_free": True}})
    assert absence.proof(OWN, parse_stored(old)) is Proof.NONE


class Clock:
    """Moved by the test."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def doubt(late: LateOutcomes, asked_at: float, *, since: float = 100.0, working: bool = False) -> str:
    (lookup,) = contract(BODY).lookup  # final after 1 s
    return Finality("exe_1", since, late, working=working).doubt(lookup, asked_at)


def test_ups_08_finality_counts_from_the_end_of_the_last_task() -> None:
    """While one runs, nothing is final; then from its end; and the question must come after that."""
    clock = Clock()
    late = LateOutcomes(clock)
    assert (doubt(late, 100.9), doubt(late, 101.0)) == ("NOT_FINAL_YET", "")
    first, second = late.outlives("exe_1"), late.outlives("exe_1")
    assert doubt(late, 1000.0) == "CALL_STILL_RUNNING"
    first(True)
    assert doubt(late, 1000.0) == "CALL_STILL_RUNNING"
    clock.now = 200.0
    second(True)
    assert (doubt(late, 200.9), doubt(late, 201.0)) == ("NOT_FINAL_YET", "")
    assert doubt(late, 201.0, since=201.0) == "NOT_FINAL_YET"  # the attempt after it was sent later


def test_ups_08_a_task_that_had_to_be_cancelled_is_never_known_to_have_ended() -> None:
    """Its thread may still send; also for whoever takes the execution up again in this process."""
    late = LateOutcomes(Clock())
    late.outlives("exe_1")(False)
    late.forget("exe_1")
    assert doubt(late, 1e9) == "CALL_STILL_RUNNING"
    assert late.ended("exe_2", 7.0) == 7.0


def test_ups_08_a_task_that_an_earlier_run_left_counts_for_whoever_takes_it_up() -> None:
    """It ends after the execution was taken up again: finality counts from its end, not from the taking up."""
    clock = Clock()
    late = LateOutcomes(clock)
    ended = late.outlives("exe_1")
    late.forget("exe_1")
    late.taken_up("exe_1", acted=False)
    clock.now = 200.0
    ended(True)
    assert (doubt(late, 200.9), doubt(late, 201.0)) == ("NOT_FINAL_YET", "")
    late.forget("exe_1")
    assert (late._running, late._ended) == ({}, {})


def test_a_late_answer_on_record_counts_until_the_run_that_found_it_ends() -> None:
    late = LateOutcomes(Clock())
    late.taken_up("exe_1", acted=True)
    assert late.acted("exe_1")
    assert not late.acted("exe_2")
    late.forget("exe_1")
    assert not late.acted("exe_1")


def test_what_has_ended_is_forgotten_with_its_run() -> None:
    """Nothing is kept of executions that are over, however late their tasks end."""
    late = LateOutcomes(Clock())
    ended = late.outlives("exe_1")
    late.forget("exe_1")
    ended(True)
    assert (late._running, late._ended) == ({}, {})


def test_work_that_goes_on_makes_every_absence_unprovable() -> None:
    """OUT-10, UPS-02."""
    assert doubt(LateOutcomes(Clock()), 1e9, working=True) == "WORK_GOES_ON"
