"""The queue and the thread, with an SDK exporter that the test holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from kblockd.telemetry.contract import ContractViolation, Vocabulary
from kblockd.telemetry.exporter import NullExport, SpanExport, otlp_exporter
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.spans import SpanBuilder, instance_resource


class Collector(SpanExporter):
    """Keeps spans; ``gate`` holds an export until it is set or the exporter is shut down."""

    def __init__(self, *, open_gate: bool = True, fails: bool = False, raises: bool = False) -> None:
        self.spans: list[ReadableSpan] = []
        self.requests: list[int] = []
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.fails = fails
        self.raises = raises
        if open_gate:
            self.gate.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.gate.wait()
        if self.raises:
            raise OSError("sk_live_secret")
        if self.fails:
            return SpanExportResult.FAILURE
        self.spans += spans
        self.requests.append(len(spans))
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.fails = True
        self.gate.set()


def export_to(collector: Collector, *, ratio: float = 1, strict: bool = False, max_queued: int = 2048) -> SpanExport:
    builder = SpanBuilder(instance_resource("kblockd-1", "0.1.0"), Vocabulary({}))
    return SpanExport(collector, Sampling(ratio), builder, strict=strict, max_queued=max_queued, delay_seconds=0.01)


def trace_of(*stages: tuple[int, str], sampled: bool = True) -> Trace:
    trace = Trace(trace_id="a" * 32, root_span_id="b" * 16, sampled=sampled)
    for number, name in stages:
        with trace.stage(number, name):
            pass
    return trace


def test_close_sends_what_is_queued() -> None:
    collector = Collector()
    export = export_to(collector)
    for _ in range(200):
        export.finish(trace_of((9, "consume")))
    assert export.close(30)
    assert len(collector.spans) == 400
    assert export.counts.spans_exported == 400


def test_requests_are_bounded() -> None:
    collector = Collector()
    export = export_to(collector)
    export.finish(trace_of(*[(14, "verify")] * 511))
    export.finish(trace_of(*[(14, "verify")] * 511))
    assert export.close(30)
    assert sum(collector.requests) == 1024
    assert max(collector.requests) <= 512


def test_a_full_queue_drops_and_counts_and_does_not_wait() -> None:
    collector = Collector(open_gate=False)
    export = export_to(collector, max_queued=3)
    export.finish(trace_of())
    assert collector.entered.wait(30)
    for _ in range(5):
        export.finish(trace_of())
    assert export.counts.traces_dropped == 2
    collector.gate.set()
    assert export.close(30)
    assert len(collector.spans) == 4


def test_otl_01_a_sender_that_hangs_is_cut() -> None:
    collector = Collector(open_gate=False)
    export = export_to(collector)
    export.finish(trace_of())
    assert collector.entered.wait(30)
    export.finish(trace_of())
    assert not export.close(0.05)
    assert collector.spans == []
    counts = export.counts
    assert counts.spans_failed + counts.traces_dropped == 2


@pytest.mark.parametrize("collector", [Collector(fails=True), Collector(raises=True)], ids=["fails", "raises"])
def test_a_failing_sender_is_counted_and_never_raises(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    export = export_to(collector)
    export.finish(trace_of((3, "decide")))
    assert not export.close(30)
    assert export.counts.spans_failed == 2
    assert "sk_live_secret" not in caplog.text


def test_a_trace_that_cannot_be_built_costs_only_itself() -> None:
    collector = Collector()
    export = export_to(collector)
    export.finish(Trace(sampled=True))
    export.finish(trace_of())
    export.close(30)
    assert [span.name for span in collector.spans] == ["kblock.execution"]
    assert export.counts.traces_dropped == 1


def test_after_close_traces_are_dropped_and_counted() -> None:
    export = export_to(Collector())
    assert export.close(30)
    export.finish(trace_of())
    assert export.counts.traces_dropped == 1
    assert export.close(30)


def test_what_is_not_sampled_is_not_queued() -> None:
    collector = Collector()
    export = export_to(collector, ratio=0)
    export.finish(trace_of(sampled=False))
    assert export.close(30)
    assert collector.spans == []
    assert export.counts.traces_dropped == 0


def test_strict_refuses_and_production_drops_and_counts() -> None:
    """R529, R530."""
    trace = trace_of((9, "consume"), (3, "sk_live_secret"))
    trace.attributes["customer"] = "sk_live_secret"
    strict = export_to(Collector(), strict=True)
    with pytest.raises(ContractViolation):
        strict.finish(trace)
    trace.end_ns = 0
    assert strict.close(30)
    collector = Collector()
    export = export_to(collector)
    export.finish(trace)
    assert export.close(30)
    assert [span.name for span in collector.spans] == ["kblock.execution", "kblock.consume"]
    assert export.counts.refused == 2


def test_a_trace_is_finished_once() -> None:
    collector = Collector()
    export = export_to(collector)
    trace = trace_of()
    export.finish(trace)
    export.finish(trace)
    assert export.close(30)
    assert len(collector.spans) == 1


def test_an_open_row_ends_with_its_trace() -> None:
    collector = Collector()
    export = export_to(collector)
    trace = trace_of()
    trace.stage(11, "dispatch")
    export.finish(trace)
    assert export.close(30)
    root, dispatch = collector.spans
    assert dispatch.end_time == root.end_time == trace.end_ns
    assert dispatch.start_time is not None
    assert dispatch.start_time <= trace.end_ns


async def test_null_export_keeps_nothing() -> None:
    export = NullExport()
    export.finish(trace_of())
    assert await export.aclose()
    assert export.counts.spans_exported == 0


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "collector",
        "127.0.0.1:4317",
        "ftp://h:1",
        "http://h",
        "http://u:sk_live_secret@h:1",
        "http://h:x",
        "http://h:1/p",
    ],
)
def test_a_wrong_address_is_refused_with_the_field(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"telemetry\.otlp") as refused:
        otlp_exporter(endpoint)
    assert "sk_live_secret" not in str(refused.value)
