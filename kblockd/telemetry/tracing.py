"""The three steps of a trace: ``begin`` with the call, ``admit`` with its principal, ``finish`` after the answer.

``telemetry.otlp: null`` does not change the first two: ledger and upstreams get the trace id regardless (OTL-05).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from kblockd.domain.ids import Ids
from kblockd.telemetry.context import extract
from kblockd.telemetry.contract import AGENT, Vocabulary
from kblockd.telemetry.exporter import CLOSE_SECONDS, Export, NullExport, SpanExport, otlp_exporter
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.spans import SpanBuilder, instance_resource


@dataclass(frozen=True, slots=True)
class Tracing:
    """One per daemon; stages see only the ``Trace``."""

    sampling: Sampling
    export: Export
    ids: Ids

    def begin(self, metadata: Iterable[tuple[str, str | bytes]] = ()) -> Trace:
        """A trace under the caller's span, or a new one, with its ids.

        A compensation, which is an execution of its own, begins with ``outgoing(trace, row).items()`` of the stage that
        planned it.
        """
        parent = extract(metadata)
        root = self.ids.salt()[:16]
        if parent is None:
            return Trace(trace_id=self.ids.salt(), root_span_id=root)
        return Trace(
            trace_id=parent.trace_id,
            parent_span_id=parent.span_id,
            tracestate=parent.tracestate,
            root_span_id=root,
            parent_sampled=parent.sampled,
        )

    def admit(self, trace: Trace, principal: str) -> None:
        """Once the principal is known: decides whether its sampled flag counts, and so which flag upstreams get."""
        trace.attributes[AGENT] = principal
        trace.sampled = self.sampling.at_start(trace, principal)

    def finish(self, trace: Trace) -> None:
        """After the answer was sent or the execution's task has ended. Never waits."""
        self.export.finish(trace)

    async def aclose(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """After the ledger is closed (OTL-01); True when no trace was lost."""
        return await self.export.aclose(timeout_seconds)


def open_tracing(
    otlp: str | None,
    sampling: Sampling,
    ids: Ids,
    *,
    instance: str,
    version: str,
    configured: Mapping[str, Container[str]],
    strict: bool = False,
) -> Tracing:
    """From the configuration's ``telemetry`` block. ``configured``: see ``Vocabulary``. ``strict`` is for tests and
    development. Raises ValueError naming ``telemetry.otlp`` if it is not an address."""
    if otlp is None:
        return Tracing(sampling, NullExport(), ids)
    builder = SpanBuilder(instance_resource(instance, version), Vocabulary(configured))
    return Tracing(sampling, SpanExport(otlp_exporter(otlp), sampling, builder, strict=strict), ids)
