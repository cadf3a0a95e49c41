"""Spans over real OTLP: the tree, the redaction, and interleaved runs."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from kblockd.domain.errors import PermissionDenied, Reason
from kblockd.telemetry import contract
from kblockd.telemetry.context import outgoing
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.tracing import Tracing, open_tracing
from tests.upstreams.otlp_receiver import OtlpReceiver, Received

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
ATTEMPT_STAGES = ("preflight", "lease", "read", "preconditions", "consume", "mark_sent", "dispatch", "classify")
CONFIGURED = {
    contract.AGENT: {"local:agent"},
    contract.OPERATION: {"payment.refund.create"},
    contract.WORKFLOW_TYPE: {"payment.refund.create"},
    contract.UPSTREAM: {"payments"},
    contract.TOOL: {"refund", "get_order", "list_refunds"},
    contract.ENVIRONMENT: {"production"},
}


class CountedIds:
    """Distinct and reproducible."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self.salt()}"

    def salt(self) -> str:
        return f"{next(self._numbers) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


def tracing_to(
    endpoint: str | None, *, ratio: float = 1, trusted: tuple[str, ...] = (), strict: bool = True
) -> Tracing:
    return open_tracing(
        endpoint,
        Sampling(ratio, frozenset(trusted)),
        CountedIds(),
        instance="kblockd-1",
        version="0.1.0",
        configured=CONFIGURED,
        strict=strict,
    )


def called(sampled: bool) -> list[tuple[str, str | bytes]]:
    flag = "01" if sampled else "00"
    return [("traceparent", f"00-{TRACE}-{SPAN}-{flag}"), ("tracestate", f"a={SECRET}"), ("baggage", f"c={SECRET}")]


def record_refund(trace: Trace) -> None:
    """What the stages of one refund record: an attempt that was lost, its reconciliation, and a second attempt."""
    trace.attributes |= {
        contract.OPERATION: "payment.refund.create",
        contract.WORKFLOW_TYPE: "payment.refund.create",
        contract.AGENT_VERSION: "2.1.0",
        contract.ENVIRONMENT: "production",
        contract.RESULT_CLASS: "completed_verified",
        contract.STATE: "succeeded",
    }
    for number, name in enumerate(["authenticate", "admit", "replay", "decide", "await_approval"]):
        with trace.stage(number, name) as row:
            if name == "decide":
                row.attributes[contract.EFFECT] = "allow"
    record_attempt(trace, 1, "lost")
    with trace.stage(13, "reconcile") as row:
        row.attributes[contract.FINDING] = "absent"
        for _ in range(2):
            with trace.nested(row, "poll") as poll, trace.nested(poll, "upstream_call") as call:
                call.attributes |= {contract.CALL: "lookup", contract.TOOL: "list_refunds"}
    with trace.stage(15, "recover") as row:
        row.attributes[contract.RECOVERY] = "retry"
    record_attempt(trace, 2, "answered")
    with trace.stage(14, "verify") as row:
        row.attributes[contract.VERIFICATION] = "expected"
    with trace.stage(16, "seal") as row:
        row.attributes[contract.STATE] = "succeeded"


def record_attempt(trace: Trace, attempt: int, sent: str) -> None:
    for number, name in enumerate(
        ["preflight", "lease", "read", "preconditions", "consume", "mark_sent", "dispatch", "classify"], 5
    ):
        with trace.stage(number, name) as row:
            if name == "dispatch":
                row.attributes |= {contract.TOOL: "refund", contract.UPSTREAM: "payments", contract.SENT: sent}
                row.attributes |= {contract.SERVER_VERSION: "1.4.2", contract.ATTEMPT: attempt}
                with trace.nested(row, "upstream_call") as call:
                    call.attributes[contract.CALL] = "invoke"


def named(spans: list[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]


async def test_the_tree_arrives_over_otlp(receiver: OtlpReceiver) -> None:
    """R508 to R519, R532: one root under the caller, every stage under it, attempts and polls as spans of their own."""
    tracing = tracing_to(receiver.endpoint)
    trace = tracing.begin(called(sampled=True))
    tracing.admit(trace, "local:agent")
    record_refund(trace)
    tracing.finish(trace)
    assert await tracing.aclose(30)
    spans = receiver.spans()
    (root,) = named(spans, "kblock.execution")
    assert (root.trace_id, root.parent_id) == (TRACE, SPAN)
    assert {span.trace_id for span in spans} == {TRACE}
    assert [span for span in spans if span.remote_parent] == [root]
    assert len({span.span_id for span in spans}) == len(spans) == 32
    stages = [span for span in spans if span.parent_id == root.span_id]
    assert {span.name for span in stages} == {rule.name for rule in contract.SPANS[1:18]}
    assert len(named(stages, "kblock.dispatch")) == len(named(stages, "kblock.preflight")) == 2
    (reconcile,) = named(spans, "kblock.reconcile")
    polls = named(spans, "kblock.poll")
    assert [poll.parent_id for poll in polls] == [reconcile.span_id] * 2
    calls = named(spans, "kblock.upstream_call")
    parents = {span.span_id for span in [*polls, *named(stages, "kblock.dispatch")]}
    assert {call.parent_id for call in calls} == parents
    assert all(call.client for call in calls)


async def test_the_attributes_arrive_over_otlp(receiver: OtlpReceiver) -> None:
    """R520 to R528."""
    tracing = tracing_to(receiver.endpoint)
    trace = tracing.begin()
    tracing.admit(trace, "local:agent")
    record_refund(trace)
    tracing.finish(trace)
    assert await tracing.aclose(30)
    spans = receiver.spans()
    (root,) = named(spans, "kblock.execution")
    assert root.parent_id == ""
    assert root.resource == {
        "service.name": "kblockd",
        "service.version": "0.1.0",
        "service.instance.id": "kblockd-1",
    }
    assert root.attributes == {
        "kblock.agent": "local:agent",
        "kblock.agent.version": "2.1.0",
        "kblock.workflow.type": "payment.refund.create",
        "kblock.operation": "payment.refund.create",
        "kblock.environment": "production",
        "kblock.result_class": "completed_verified",
        "kblock.state": "succeeded",
        "kblock.sampled_late": False,
    }
    first, second = named(spans, "kblock.dispatch")
    assert (first.attributes["kblock.sent"], second.attributes["kblock.sent"]) == ("lost", "answered")
    assert (first.attributes["kblock.attempt"], second.attributes["kblock.attempt"]) == (1, 2)
    assert second.attributes["kblock.tool"] == "refund"
    assert second.attributes["kblock.server.version"] == "1.4.2"
    assert named(spans, "kblock.verify")[0].attributes == {"kblock.verification": "expected"}
    assert named(spans, "kblock.recover")[0].attributes == {"kblock.recovery": "retry"}
    assert all(span.end_ns >= span.start_ns >= root.start_ns for span in spans)
    assert all(span.end_ns <= root.end_ns for span in spans)


async def test_a_refusal_arrives_with_its_reason(receiver: OtlpReceiver) -> None:
    """R527: and although nothing is sampled, because errors always are."""
    tracing = tracing_to(receiver.endpoint, ratio=0)
    trace = tracing.begin(called(sampled=False))
    tracing.admit(trace, "local:agent")
    with pytest.raises(PermissionDenied), trace.stage(3, "decide"):
        raise PermissionDenied(Reason.PERMISSION_DENIED, f"card {SECRET}")
    tracing.finish(trace)
    assert await tracing.aclose(30)
    root, decide = receiver.spans()
    assert root.error
    assert decide.error
    assert decide.attributes == {"error.type": "PERMISSION_DENIED"}
    assert root.attributes["kblock.sampled_late"] is True
    assert SECRET.encode() not in receiver.raw()


async def test_no_argument_output_or_credential_in_the_exported_bytes(receiver: OtlpReceiver) -> None:
    """R530, R531: a secret in every field that the recorder accepts by mistake leaves in none."""
    tracing = tracing_to(receiver.endpoint, strict=False)
    trace = tracing.begin(called(sampled=True))
    tracing.admit(trace, SECRET)
    everything: dict[str, Any] = dict.fromkeys(contract.ATTRIBUTES, SECRET)
    everything |= {SECRET: 1, "arguments": SECRET, "authorization": f"Bearer {SECRET}", "bytes": SECRET.encode()}
    everything |= {"nested": {"a": SECRET}, "list": [SECRET], contract.TOOL + ".x": SECRET}
    trace.attributes |= everything
    with trace.stage(11, "dispatch") as row:
        row.attributes |= everything
        row.error = SECRET
        with trace.nested(row, SECRET) as inner:
            inner.attributes |= everything
        with trace.nested(inner, "poll") as poll:
            poll.attributes = cast(Any, {contract.TOOL: [SECRET], contract.ATTEMPT: {"a": SECRET}})
    with trace.stage(16, SECRET):
        pass
    with pytest.raises(ValueError, match="sk_live"), trace.stage(12, "classify"):
        raise ValueError(SECRET)
    tracing.finish(trace)
    assert await tracing.aclose(30)
    raw = receiver.raw()
    spans = receiver.spans()
    assert [span.name for span in spans] == [
        "kblock.execution",
        "kblock.dispatch",
        "kblock.poll",
        "kblock.classify",
    ]
    assert spans[2].parent_id == spans[0].span_id
    assert spans[1].attributes["kblock.tool"] == "other"
    for piece in (SECRET, SECRET[8:], SECRET[:16], SECRET.upper()):
        assert piece.encode() not in raw
    assert tracing.export.counts.refused > 10


async def test_otl_05_a_caller_that_is_not_sampled_keeps_its_trace_id(receiver: OtlpReceiver) -> None:
    """The id is there for the ledger and goes on upstream, whoever samples what."""
    tracing = tracing_to(receiver.endpoint, trusted=("local:agent",))
    trace = tracing.begin(called(sampled=False))
    tracing.admit(trace, "local:agent")
    with trace.stage(11, "dispatch") as row:
        context = outgoing(trace, row)
    tracing.finish(trace)
    assert await tracing.aclose(30)
    assert trace.trace_id == TRACE
    assert context["traceparent"] == f"00-{TRACE}-{trace.span_id(row)}-00"
    assert "baggage" not in context
    assert receiver.spans() == []


async def test_otl_05_without_a_collector_the_trace_id_is_kept_too() -> None:
    tracing = tracing_to(None)
    trace = tracing.begin(called(sampled=False))
    tracing.admit(trace, "local:agent")
    tracing.finish(trace)
    own = tracing.begin()
    assert trace.trace_id == TRACE
    assert len(own.trace_id) == 32
    assert len(own.root_span_id) == 16
    assert await tracing.aclose()


async def test_the_flag_of_an_unknown_principal_counts_for_nothing(receiver: OtlpReceiver) -> None:
    tracing = tracing_to(receiver.endpoint, ratio=0, trusted=("local:trusted",))
    for principal in ("local:agent", "local:trusted"):
        trace = tracing.begin(called(sampled=True))
        tracing.admit(trace, principal)
        tracing.finish(trace)
    assert await tracing.aclose(30)
    assert len(receiver.spans()) == 1


async def test_a_compensation_hangs_under_the_stage_that_planned_it(receiver: OtlpReceiver) -> None:
    """R518: an execution of its own."""
    tracing = tracing_to(receiver.endpoint)
    trace = tracing.begin()
    with trace.stage(15, "recover") as row:
        child = tracing.begin(outgoing(trace, row).items())
        child.attributes[contract.RECOVERY] = "compensation"
        trace.sampled = child.sampled = True
        tracing.finish(child)
    tracing.finish(trace)
    assert await tracing.aclose(30)
    spans = receiver.spans()
    (recover,) = named(spans, "kblock.recover")
    compensation = next(span for span in spans if span.attributes.get("kblock.recovery") == "compensation")
    assert (compensation.trace_id, compensation.parent_id) == (recover.trace_id, recover.span_id)


async def interleaved_run(tracing: Tracing, number: int) -> None:
    """One run with waits, a generator that is left half-way, and in every third run a cancel in the middle."""
    parent = f"{number:016x}"
    trace = tracing.begin([("traceparent", f"00-{number:032x}-{parent}-01")])
    tracing.admit(trace, "local:agent")
    trace.attributes[contract.ATTEMPT] = number

    async def polls() -> AsyncIterator[int]:
        with trace.stage(14, "verify") as row:
            for turn in itertools.count():
                with trace.nested(row, "poll"):
                    await asyncio.sleep(0)
                    yield turn

    async def dispatch() -> None:
        with trace.stage(11, "dispatch") as row, trace.nested(row, "upstream_call"):
            await asyncio.sleep(3600 if number % 3 == 0 else 0)

    task = asyncio.create_task(dispatch())
    await asyncio.sleep(0)
    if number % 3 == 0:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    generator = polls()
    async for turn in generator:
        if turn == number % 4:
            break
    # Closed by another task, as a garbage collector or a client that goes away would.
    await asyncio.create_task(cast(Any, generator).aclose())
    tracing.finish(trace)


async def test_otl_03_interleaved_runs_keep_their_own_parents(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        tracing = tracing_to(receiver.endpoint)
        await asyncio.gather(*(interleaved_run(tracing, number) for number in range(1, 101)))
        assert await tracing.aclose(30)
    spans = receiver.spans()
    for number in range(1, 101):
        own = [span for span in spans if span.trace_id == f"{number:032x}"]
        (root,) = named(own, "kblock.execution")
        assert root.parent_id == f"{number:016x}"
        assert root.attributes["kblock.attempt"] == number
        (dispatch,), (verify,) = named(own, "kblock.dispatch"), named(own, "kblock.verify")
        assert dispatch.parent_id == verify.parent_id == root.span_id
        assert dispatch.error == (number % 3 == 0)
        assert [call.parent_id for call in named(own, "kblock.upstream_call")] == [dispatch.span_id]
        assert [poll.parent_id for poll in named(own, "kblock.poll")] == [verify.span_id] * (number % 4 + 1)
    assert "detach" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_spans_arrive_without_an_exit(receiver: OtlpReceiver) -> None:
    tracing = tracing_to(receiver.endpoint)
    trace = tracing.begin()
    tracing.admit(trace, "local:agent")
    tracing.finish(trace)
    await asyncio.to_thread(receiver.wait_for, 1)
    assert await tracing.aclose(30)
