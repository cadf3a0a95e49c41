"""The domain to messages and back, and the limit of 4 MiB."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from kblockd._proto.kblock.v1 import approval_service_pb2, execution_service_pb2, types_pb2
from kblockd.client import messages
from kblockd.client.answers import KINDS
from kblockd.domain.outcome import CallOutcome, CallStatus
from kblockd.rpc import answers
from tests.unit.rpc.fakes import APPROVAL, COMPLETED, EVENTS

FULL = replace(COMPLETED, phase="verifying", code="C", outcome_unknown=True, no_receipt_reason="later")


def plain(answer: CallOutcome) -> CallOutcome:
    return CallOutcome(**{field.name: getattr(answer, field.name) for field in dataclasses.fields(CallOutcome)})


def test_every_outcome_field_survives_both_ways() -> None:
    message = answers.outcome(FULL)
    assert plain(messages.read_outcome(message, None)) == FULL
    sent = {descriptor.name for descriptor, _ in message.ListFields()}
    assert {f.name for f in types_pb2.Outcome.DESCRIPTOR.fields} - sent == {"output_omitted"}


@pytest.mark.parametrize("status", list(CallStatus))
def test_every_status_has_a_number_and_a_type(status: CallStatus) -> None:
    """R361, R362, R656: each status is a type of its own for the caller."""
    message = answers.outcome(replace(COMPLETED, status=status))
    assert types_pb2.CallStatus.Name(message.status) == f"CALL_STATUS_{status.name}"
    assert type(messages.read_outcome(message, None)) is KINDS[status]


def test_every_number_of_a_status_is_used() -> None:
    assert len(types_pb2.CallStatus.values()) == len(CallStatus) + 1


def test_a_status_of_a_newer_daemon_is_refused_by_the_client() -> None:
    with pytest.raises(ValueError, match="does not know status 99"):
        messages.read_outcome(types_pb2.Outcome(status=99), None)


def test_every_event_field_survives_both_ways() -> None:
    for event in EVENTS:
        assert messages.read_event(answers.event(event)) == event
    sent = {d.name for d, _ in answers.event(replace(EVENTS[0], code="C")).ListFields()}
    assert {f.name for f in execution_service_pb2.StageEvent.DESCRIPTOR.fields} == sent


def test_every_approval_field_survives_both_ways() -> None:
    message = answers.approval(APPROVAL)
    assert messages.read_approval(message) == APPROVAL
    assert {f.name for f in approval_service_pb2.Approval.DESCRIPTOR.fields} == {
        d.name for d, _ in message.ListFields()
    }


def test_lists_leave_out_what_may_be_large() -> None:
    listed = answers.listed(COMPLETED)
    assert not (listed.output_json)
    assert not (listed.result_dsse)
    assert not (listed.receipt_dsse)
    assert not (listed.receipt_proof)
    assert listed.execution_id == COMPLETED.execution_id
    approval = answers.listed_approval(APPROVAL)
    assert not (approval.arguments_json)
    assert not (approval.intent_json)


def test_an_output_that_would_not_arrive_is_left_out_and_the_rest_arrives() -> None:
    large = replace(COMPLETED, output_json=b'"' + b"x" * answers.MAX_ANSWER + b'"')
    answer = execution_service_pb2.ExecutionServiceExecuteResponse(outcome=answers.outcome(large))
    answers.fit(answer, answer.outcome)
    assert answer.ByteSize() < answers.MAX_ANSWER
    assert answer.outcome.output_omitted
    assert answer.outcome.receipt_dsse == COMPLETED.receipt_dsse


def test_leaves_fill_one_answer_and_no_more() -> None:
    leaf = b"x" * 65_535
    taken = answers.leaves((index, leaf) for index in range(1000))
    assert 40 < len(taken) < 60
    assert [one.index for one in taken] == list(range(len(taken)))
    assert len(answers.leaves([(0, b"x" * answers.MAX_ANSWER)])) == 1
