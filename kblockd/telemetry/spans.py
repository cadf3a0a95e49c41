"""Turns the rows of a trace into OpenTelemetry spans, through the contract, after the answer has been sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kblockd.telemetry.contract import ERROR, LATE, ROOT, UNKEPT, SpanRule, Vocabulary, span_rule
from kblockd.telemetry.recorder import StageRow, Trace, Value

_SCOPE: Final = InstrumentationScope("kblockd.telemetry")


def instance_resource(instance: str, version: str) -> Resource:
    """Three attributes, and nothing from the environment or the machine, which the contract does not cover."""
    return Resource({"service.name": "kblockd", "service.version": version, "service.instance.id": instance})


@dataclass(slots=True)
class SpanBuilder:
    """Builds spans; ``refused`` counts spans and attributes outside the contract."""

    resource: Resource
    vocabulary: Vocabulary
    refused: int = 0

    def build(self, trace: Trace) -> list[ReadableSpan]:
        """The root span first, then one span per row, in the order of their starts.

        Raises ValueError for a trace without ids. The caller's tracestate is passed to upstreams but not put into
        spans, because it is free text.
        """
        rows = [(row, rule) for row in trace.rows if (rule := self._rule(row))]
        end_ns = max([trace.end_ns, trace.start_ns, *(row.end_ns for row, _ in rows)])
        exported = {row.sequence: row for row, _ in rows}
        spans = [self._root(trace, end_ns)]
        for row, rule in rows:
            parent = self._context(trace, exported.get(row.parent))
            spans.append(self._span(trace, row, rule, parent, end_ns))
        return spans

    def _rule(self, row: StageRow) -> SpanRule | None:
        rule = span_rule(row)
        self.refused += rule is None
        return rule

    def _root(self, trace: Trace, end_ns: int) -> ReadableSpan:
        attributes: dict[str, Value] = dict(trace.attributes)
        attributes[LATE] = not trace.sampled
        if trace.unkept:
            attributes[UNKEPT] = trace.unkept
        parent = None
        if trace.parent_span_id:
            parent = _span_context(trace.trace_id, trace.parent_span_id, remote=True)
        return ReadableSpan(
            ROOT,
            context=self._context(trace, None),
            parent=parent,
            resource=self.resource,
            attributes=self._attributes(attributes, _root_error(trace)),
            kind=SpanKind.SERVER,
            status=_status(_root_error(trace)),
            start_time=trace.start_ns,
            end_time=end_ns,
            instrumentation_scope=_SCOPE,
        )

    def _span(self, trace: Trace, row: StageRow, rule: SpanRule, parent: SpanContext, end_ns: int) -> ReadableSpan:
        return ReadableSpan(
            rule.name,
            context=self._context(trace, row),
            parent=parent,
            resource=self.resource,
            attributes=self._attributes(dict(row.attributes), row.error),
            kind=SpanKind.CLIENT if rule.client else SpanKind.INTERNAL,
            status=_status(row.error),
            start_time=row.start_ns,
            end_time=max(row.start_ns, row.end_ns or end_ns),
            instrumentation_scope=_SCOPE,
        )

    def _attributes(self, raw: Mapping[str, object], error: str) -> dict[str, Value]:
        recorded: dict[str, object] = {**raw, ERROR: error} if error else dict(raw)
        attributes: dict[str, Value] = {}
        for name, item in recorded.items():
            value = self.vocabulary.value(name, item)
            if value is None:
                self.refused += 1
            else:
                attributes[name] = value
        return attributes

    def _context(self, trace: Trace, row: StageRow | None) -> SpanContext:
        return _span_context(trace.trace_id, trace.span_id(row), remote=False)


def _span_context(trace_id: str, span_id: str, *, remote: bool) -> SpanContext:
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )


def _root_error(trace: Trace) -> str:
    """An error that left the pipeline is in the last stage; earlier errors were handled."""
    stages = [row for row in trace.rows if not row.parent]
    return stages[-1].error if stages else ""


def _status(error: str) -> Status:
    """Without a description, which would be free text."""
    return Status(StatusCode.ERROR if error else StatusCode.UNSET)
