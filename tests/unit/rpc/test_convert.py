"""Requests to the domain, field by field."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from kblockd._proto.kblock.v1 import approval_service_pb2, execution_service_pb2, types_pb2
from kblockd.client import messages
from kblockd.domain.envelope import BindingPin, Envelope, TargetPin
from kblockd.domain.errors import InvalidArgument, Reason
from kblockd.domain.outcome import Finding
from kblockd.domain.text import foreign
from kblockd.rpc import convert, interceptors
from tests.unit.rpc.fakes import AT, HEX

FULL = Envelope(
    schema_version="kblock.envelope/1",
    environment="production",
    operation="payment.refund.create",
    target=TargetPin("order", "A-1", "v7"),
    arguments_json=b'{"order_id":"A-1"}',
    action_id="corr-1",
    requester="local:agent",
    agent="spiffe://acme/agent",
    tenant="acme",
    organization="acme-eu",
    arguments_sha256=HEX,
    binding=BindingPin("payments", "1.2.3", "refund", HEX),
    policy_revision="r1",
    approval_id="appr_1",
    approval_expires_at=AT,
    caller_key="key-1",
    has_caller_key=True,
    preconditions={"status": "paid"},
    postconditions={"refunds": 1},
    request_timeout=12.5,
    deadline=AT + dt.timedelta(minutes=5),
    maximum_attempts=2,
    cancellation="signal",
    compensation_ref="undo",
    evidence=("record_output",),
)


def minimal() -> types_pb2.Envelope:
    return types_pb2.Envelope(
        schema_version="kblock.envelope/1",
        environment="production",
        operation="payment.refund.create",
        target=types_pb2.Target(id="A-1"),
        arguments_json=b"{}",
    )


def test_every_field_survives_both_ways() -> None:
    """R008 to R029: what the client sends is what the pipeline gets. Two fields cannot be valid yet: budget, run_id."""
    assert convert.envelope(messages.envelope(FULL)) == FULL
    unset = {f.name for f in dataclasses.fields(FULL) if f.compare and getattr(FULL, f.name) == f.default}
    assert convert.envelope(messages.envelope(FULL)).arguments == foreign(FULL.arguments_json, max_bytes=1000)
    assert unset == {"run_id", "budget"}


def test_every_proto_field_is_set_by_the_full_envelope() -> None:
    """A field that is added to the file without a conversion fails here."""
    sent = {descriptor.name for descriptor, _ in messages.envelope(FULL).ListFields()}
    assert {f.name for f in types_pb2.Envelope.DESCRIPTOR.fields} - sent == {"run_id", "budget"}


def test_absent_fields_are_absent() -> None:
    found = convert.envelope(minimal())
    assert (found.approval_expires_at, found.deadline, found.request_timeout, found.budget) == (None,) * 4
    assert (found.preconditions, found.postconditions, found.has_caller_key, found.cancellation) == (
        None, None, False, "",
    )  # fmt: skip


Change = Callable[[types_pb2.Envelope], Any]


def _nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def _set(**fields: Any) -> Change:
    def change(envelope: types_pb2.Envelope) -> None:
        envelope.MergeFrom(types_pb2.Envelope(**fields))

    return change


def _unknown(message: Callable[[types_pb2.Envelope], Any]) -> Change:
    return lambda envelope: message(envelope).MergeFromString(b"\xfa\x3f\x01x")  # field 1023, a string


WRONG: list[tuple[str, Change, str]] = [
    ("schema_version", _set(schema_version="kblock.envelope/2"), "only version"),
    ("environment", lambda e: e.ClearField("environment"), "empty"),
    ("environment", _set(environment="a" * 257), "longer"),
    ("operation", lambda e: e.ClearField("operation"), "empty"),
    ("operation", _set(operation="a\nb"), "control"),
    ("target.id", lambda e: e.ClearField("target"), "empty"),
    ("target.type", _set(target=types_pb2.Target(type=" x")), "white space"),
    ("target.version", _set(target=types_pb2.Target(version="\0")), "control"),
    ("arguments_json", lambda e: e.ClearField("arguments_json"), "empty"),
    ("arguments_json", _set(arguments_json=b"[1]"), "object"),
    ("arguments_json", _set(arguments_json=b'{"a":1,"\\u0061":2}'), "twice"),
    ("arguments_json", _set(arguments_json=b'{"a":NaN}'), ""),
    ("arguments_json", _set(arguments_json=b'{"a":9007199254740993}'), "string"),
    ("arguments_json", _set(arguments_json=b'{"a":"\\ud800"}'), "surrogate"),
    ("arguments_json", _set(arguments_json=b"\xff"), "UTF-8"),
    ("arguments_json", _set(arguments_json=_nested(33)), "32 levels"),
    ("arguments_json", _set(arguments_json=b'{"a":"' + b"x" * (1 << 20) + b'"}'), "exceed the limit"),
    ("arguments_sha256", _set(arguments_sha256="AB" * 32), "hexadecimal"),
    ("run_id", _set(run_id="run-1"), "not supported"),
    ("action_id", _set(action_id="a\x7f"), "control"),
    ("requester", _set(requester="x" * 300), "longer"),
    ("agent", _set(agent=" a"), "white space"),
    ("tenant", _set(tenant="a "), "white space"),
    ("organization", _set(organization="a\tb"), "control"),
    ("binding.upstream", _set(binding=types_pb2.ToolBinding(upstream="x" * 257)), "longer"),
    ("binding.server_version", _set(binding=types_pb2.ToolBinding(server_version="\r")), "control"),
    ("binding.tool", _set(binding=types_pb2.ToolBinding(tool=" ")), "white space"),
    ("binding.definition_sha256", _set(binding=types_pb2.ToolBinding(definition_sha256="abc")), "hexadecimal"),
    ("policy_revision", _set(policy_revision="x" * 257), "longer"),
    ("approval_id", _set(approval_id=" x"), "white space"),
    ("approval_expires_at", _set(approval_expires_at=Timestamp(seconds=253_402_300_800)), "years"),
    ("approval_expires_at", _set(approval_expires_at=Timestamp(seconds=-62_135_596_801)), "years"),
    ("approval_expires_at", _set(approval_expires_at=Timestamp(nanos=-1)), "nanos"),
    ("deadline", _set(deadline=Timestamp(seconds=1 << 60)), "years"),
    ("deadline", _set(deadline=Timestamp(nanos=1_000_000_000)), "nanos"),
    ("budget", _set(budget=types_pb2.Budget(count=1)), "not supported"),
    ("caller_key", _set(caller_key=""), "blank"),
    ("caller_key", _set(caller_key="   "), "blank"),
    ("caller_key", _set(caller_key="a\0b"), "control"),
    ("caller_key", _set(caller_key="k" * 10_240), "longer"),
    ("preconditions_json", _set(preconditions_json=b"1"), "object"),
    ("preconditions_json", _set(preconditions_json=b'{"a":1e400}'), ""),
    ("postconditions_json", _set(postconditions_json=b"{"), "JSON"),
    ("request_timeout", _set(request_timeout=Duration(seconds=-1)), "negative"),
    ("request_timeout", _set(request_timeout=Duration(seconds=1, nanos=-5)), "negative"),
    ("request_timeout", _set(request_timeout=Duration(seconds=1 << 60)), "valid duration"),
    ("request_timeout", _set(request_timeout=Duration()), "more than zero"),
    ("request_timeout", _set(request_timeout=Duration(seconds=86_401)), "one day"),
    ("cancellation", _set(cancellation=99), "99"),
    ("compensation_ref", _set(compensation_ref="a\n"), "control"),
    ("evidence[1]", _set(evidence=["record_output", "everything"]), "record_"),
    ("evidence", _set(evidence=["record_output"] * 33), "32"),
    ("", _unknown(lambda e: e), "1023"),
    ("target", _unknown(lambda e: e.target), "1023"),
    ("binding", _unknown(lambda e: e.binding), "1023"),
    ("budget", _unknown(lambda e: e.budget), "1023"),
    ("deadline", _unknown(lambda e: e.deadline), "1023"),
    ("request_timeout", _unknown(lambda e: e.request_timeout), "1023"),
]


@pytest.mark.parametrize(("field", "change", "word"), WRONG, ids=[f"{i}-{name}" for i, (name, *_) in enumerate(WRONG)])
def test_a_wrong_value_names_its_field(field: str, change: Change, word: str) -> None:
    """R006, R673, IDM-19, CAN-13: INVALID_ARGUMENT with the field and what was wrong, for every field."""
    message = minimal()
    change(message)
    with pytest.raises(InvalidArgument) as caught:
        convert.envelope(message)
    found = {violation.field: violation.description for violation in caught.value.violations}
    name = f"envelope.{field}".rstrip(".")
    assert name in found
    assert word in found[name]
    assert "Nothing was executed or consumed" in caught.value.message


def test_every_envelope_field_has_a_wrong_value_above() -> None:
    tried = {name.split("[")[0].split(".")[0] for name, *_ in WRONG}
    # maximum_attempts takes every uint32.
    assert {f.name for f in types_pb2.Envelope.DESCRIPTOR.fields} - tried == {"maximum_attempts"}


def test_all_wrong_fields_are_named_at_once() -> None:
    message = minimal()
    message.arguments_json = b"nonsense"
    message.cancellation = 7
    message.deadline.seconds = 1 << 60
    with pytest.raises(InvalidArgument) as caught:
        convert.envelope(message)
    fields = [violation.field for violation in caught.value.violations]
    assert fields == ["envelope.arguments_json", "envelope.deadline", "envelope.cancellation"]


def test_another_schema_version_is_refused_before_its_fields_are_read() -> None:
    """R006: a newer envelope may well hold fields that are not known here; the version is what is wrong."""
    message = minimal()
    message.schema_version = "kblock.envelope/2"
    message.MergeFromString(b"\xfa\x3f\x01x")
    with pytest.raises(InvalidArgument) as caught:
        convert.envelope(message)
    assert caught.value.reason is Reason.UNKNOWN_SCHEMA_VERSION


def test_the_configured_limit_of_arguments_counts() -> None:
    message = minimal()
    message.arguments_json = json.dumps({"a": "x" * 100}).encode()
    assert convert.envelope(message, max_arguments=200)
    with pytest.raises(InvalidArgument, match="exceed the limit of 50"):
        convert.envelope(message, max_arguments=50)


def test_times_are_cut_to_microseconds_downwards() -> None:
    message = minimal()
    message.deadline.FromDatetime(AT)
    message.deadline.nanos += 999
    assert convert.envelope(message).deadline == AT


def test_wait_absent_zero_and_wrong() -> None:
    request = execution_service_pb2.ExecutionServiceExecuteRequest
    assert convert.wait(request()) is None
    assert convert.wait(request(wait=Duration())) == 0
    assert convert.wait(request(wait=Duration(seconds=1, nanos=500_000_000))) == 1.5
    for wrong in (Duration(seconds=-1), Duration(seconds=86_401), Duration(seconds=1 << 60), Duration(nanos=-1)):
        with pytest.raises(InvalidArgument) as caught:
            convert.wait(request(wait=wrong))
        assert caught.value.violations[0].field == "wait"


def test_findings_and_verdicts_take_no_unspecified_and_no_unknown_number() -> None:
    numbers = execution_service_pb2.Finding.values()
    assert [convert.finding(n) for n in numbers if n] == [Finding.PRESENT, Finding.ABSENT, Finding.UNPROVABLE]
    assert [convert.verdict(n) for n in approval_service_pb2.Verdict.values() if n] == ["approve", "deny"]
    for number in (0, 99, -1):
        with pytest.raises(InvalidArgument):
            convert.finding(number)
        with pytest.raises(InvalidArgument):
            convert.verdict(number)


@pytest.mark.parametrize(
    "wrong", [lambda: convert.identifier("id", ""), lambda: convert.identifier("id", "x" * 257),
              lambda: convert.identifier("id", "a\0"), lambda: convert.digest("id", "AB" * 32),
              lambda: convert.digest("id", ""), lambda: convert.reason("id", " ", required=True),
              lambda: convert.reason("id", "x" * 2001, required=False), lambda: convert.page_token("\n")]
)  # fmt: skip
def test_wrong_parts_of_other_requests_are_named(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        wrong()
    assert caught.value.violations[0].field in {"id", "page_token"}


def test_pages_states_and_limits() -> None:
    assert [convert.page_size(n) for n in (0, 7, 101)] == [50, 7, 100]
    assert [convert.leaves(n) for n in (0, 7, 1001)] == [100, 7, 1000]
    assert convert.states(["held"], {"held"}) == ("held",)
    with pytest.raises(InvalidArgument, match=r"states\[1\]"):
        convert.states(["held", "asleep"], {"held"})


JUNK = {
    "tiny fields": b"\xfa\x3f\x00" * 20_000,
    "groups": b"\xfb\x3f\xfc\x3f" * 20_000,
    "one long field": b"\xfa\x3f" + b"\xff\xff\x03" + bytes(65_535),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_agt_02_many_unknown_fields_are_refused_and_never_walked(junk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protobuf's Python makes an object of each: half a second and a hundred megabytes for a megabyte of them."""

    def never(message: Any) -> Any:
        raise AssertionError("the unknown fields were walked")

    monkeypatch.setattr(convert, "UnknownFieldSet", never)
    envelope, request = minimal(), execution_service_pb2.ExecutionServiceExecuteRequest()
    envelope.MergeFromString(junk)
    request.MergeFromString(junk)
    inside = execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope)
    for refuse in (lambda: convert.envelope(envelope), lambda: convert.refuse_unknown(request)):
        with pytest.raises(InvalidArgument, match=r"holds \d+ bytes of unknown fields"):
            refuse()
    with pytest.raises(InvalidArgument, match="holds"):
        convert.refuse_unknown(inside)


def test_agt_02_a_few_unknown_fields_are_named_and_no_more_than_a_few() -> None:
    message = minimal()
    message.MergeFromString(b"\xfa\x3f\x01x" * 500)
    with pytest.raises(InvalidArgument) as caught:
        convert.envelope(message)
    assert len(caught.value.violations) == convert.MAX_FAULTS
    request = execution_service_pb2.ExecutionServiceExecuteRequest(envelope=message)
    convert.refuse_unknown(request)  # left to the envelope, whose schema version may be another
    request = execution_service_pb2.ExecutionServiceExecuteRequest(envelope=minimal())
    request.wait.MergeFromString(b"\xfa\x3f\x01x")
    with pytest.raises(InvalidArgument) as caught:
        convert.refuse_unknown(request)
    assert caught.value.violations[0].field == "request.wait"


def test_agt_02_more_than_any_legal_request_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xfa\x3f\x00" * (interceptors.MAX_MESSAGE // 3 + 1)
    with pytest.raises(InvalidArgument, match=f"exceed the limit of {interceptors.MAX_MESSAGE}"):
        interceptors._parse(Unparsed, data)  # type: ignore[arg-type]  # its FromString would raise


class Unparsed:
    """A message that nobody may parse."""

    @staticmethod
    def FromString(data: bytes) -> Any:
        raise AssertionError("it was parsed")


@pytest.mark.parametrize("name", ["preconditions_json", "postconditions_json"])
def test_agt_03_conditions_share_the_bound_of_the_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured before a byte of them is parsed."""
    message = minimal()
    message.arguments_json = b'{"a":1}'
    setattr(message, name, b'{"b":"' + b"x" * 85 + b'"}')
    assert convert.envelope(message, max_arguments=100)
    monkeypatch.setattr(convert.canonical, "parse", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(InvalidArgument, match="together: 100 bytes exceed the limit of 99") as caught:
        convert.envelope(message, max_arguments=99)
    assert caught.value.violations[0].field == f"envelope.{name}"


def test_agt_01_a_long_key_over_many_members_is_an_object_like_others() -> None:
    """400 KB that took the loop half a minute; too many values are refused before they are parsed."""
    key = "\U0001f600" * 50_000
    members = ",".join(f'"{i}":1' for i in range(20_000))
    message = minimal()
    message.preconditions_json = f'{{"{key}":{{{members}}}}}'.encode()
    assert len((convert.envelope(message).preconditions or {})[key]) == 20_000
    message.preconditions_json = b'{"a":[' + b"1," * 70_000 + b"1]}"
    with pytest.raises(InvalidArgument, match="more than 65536 values"):
        convert.envelope(message)


def test_filters_and_faults_are_bounded() -> None:
    with pytest.raises(InvalidArgument) as caught:
        convert.states([""] * 100_000, {"held"})
    assert caught.value.violations[0].field == "states"
    assert len(caught.value.violations) == convert.MAX_FAULTS
