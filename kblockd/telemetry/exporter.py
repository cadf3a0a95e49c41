"""Exports spans: one bounded queue, one thread, OTLP over gRPC.

The hot path appends a trace to a deque. Building, encoding and sending happen in the thread; traces that cannot be sent
are dropped and counted. A collector can neither raise into a stage nor delay the exit (OTL-01, OTL-07).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from kblockd.telemetry.contract import require
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.spans import SpanBuilder

MAX_QUEUED: Final = 2048  # traces
TRACES_PER_WAKE: Final = 64
SPANS_PER_REQUEST: Final = 512  # about 150 KiB, far below a collector's usual limit of 4 MiB
DELAY_SECONDS: Final = 1.0
EXPORT_TIMEOUT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 3.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """Counts since the start. ``traces_dropped``: queue full, exporter closed, or trace not buildable;
    ``spans_failed``: not accepted by the collector; ``refused``: spans and attributes outside the contract."""

    spans_exported: int = 0
    spans_failed: int = 0
    traces_dropped: int = 0
    refused: int = 0


class Export(Protocol):
    """The exporter's interface to the rest of the daemon."""

    @property
    def counts(self) -> Counts: ...

    def finish(self, trace: Trace) -> None:
        """Queues a trace after its answer was sent; never waits, and raises only if ``strict``."""
        ...

    async def aclose(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Sends the queued traces within the time; True when none were lost."""
        ...


class NullExport:
    """For ``telemetry.otlp: null``."""

    def __init__(self) -> None:
        self.counts = Counts()

    def finish(self, trace: Trace) -> None:
        """Does nothing."""

    async def aclose(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Nothing is queued."""
        return True


class SpanExport:
    """Exports over OTLP. ``strict`` (tests, development) makes ``finish`` raise ``ContractViolation``.

    Times are seconds. The thread is a daemon thread, so even a hanging sender cannot keep the process alive.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        sampling: Sampling,
        builder: SpanBuilder,
        *,
        strict: bool = False,
        max_queued: int = MAX_QUEUED,
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        self._exporter = exporter
        self._sampling = sampling
        self._builder = builder
        self._strict = strict
        self._max_queued = max_queued
        self._delay = delay_seconds
        self._queue: deque[Trace] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._abandoned = False
        self._counts = Counts()
        self._thread = threading.Thread(target=self._run, name="kblockd-spans", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> Counts:
        """A copy."""
        with self._wake:
            counts = self._counts
            return Counts(counts.spans_exported, counts.spans_failed, counts.traces_dropped, self._builder.refused)

    def finish(self, trace: Trace) -> None:
        """Makes the final sampling decision and queues the trace; a second call does nothing."""
        if trace.end_ns:
            return
        trace.end_ns = trace.clock()
        if self._strict:
            require(trace)
        if self._sampling.at_end(trace):
            self._put(trace)

    def _put(self, trace: Trace) -> None:
        with self._wake:  # held for an append, never across a send
            if self._closing or len(self._queue) >= self._max_queued:
                self._counts.traces_dropped += 1
                return
            self._queue.append(trace)
            if len(self._queue) == TRACES_PER_WAKE:
                self._wake.notify()

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """Blocks at most ``timeout_seconds``, plus a second to cut off a stuck sender; idempotent."""
        with self._wake:
            lost_before = self._lost()
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_seconds)
        late = self._thread.is_alive()
        self._abandoned = late
        cut = threading.Thread(target=self._cut, name="kblockd-spans-cut", daemon=True)
        cut.start()
        cut.join(0.5)
        self._thread.join(0.5)
        with self._wake:
            self._counts.traces_dropped += len(self._queue)
            self._queue.clear()
            return not late and self._lost() == lost_before

    def _lost(self) -> int:
        return self._counts.traces_dropped + self._counts.spans_failed

    async def aclose(self, timeout_seconds: float = CLOSE_SECONDS) -> bool:
        """``close`` in a thread, so that the loop is not blocked."""
        return await asyncio.to_thread(self.close, timeout_seconds)

    def _cut(self) -> None:
        """Closes the channel, which also ends an export in progress."""
        try:
            self._exporter.shutdown()
        except Exception as error:
            _log.warning("the span exporter did not shut down cleanly: %s", type(error).__name__)

    def _run(self) -> None:
        while True:
            traces, last = self._gather()
            for spans in self._requests(traces):
                self._send(spans)
            if last:
                return

    def _gather(self) -> tuple[list[Trace], bool]:
        with self._wake:
            if not self._closing and len(self._queue) < TRACES_PER_WAKE:
                self._wake.wait(self._delay)
            count = min(len(self._queue), TRACES_PER_WAKE)
            traces = [self._queue.popleft() for _ in range(count)]
            return traces, self._closing and not self._queue

    def _requests(self, traces: list[Trace]) -> list[list[ReadableSpan]]:
        spans: list[ReadableSpan] = []
        for trace in traces:
            try:
                spans += self._builder.build(trace)
            except Exception as error:
                with self._wake:
                    self._counts.traces_dropped += 1
                _log.warning("a trace could not be exported: %s", type(error).__name__)
        return [spans[start : start + SPANS_PER_REQUEST] for start in range(0, len(spans), SPANS_PER_REQUEST)]

    def _send(self, spans: list[ReadableSpan]) -> None:
        sent = False
        try:
            sent = not self._abandoned and self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:
            _log.warning("spans were not sent: %s", type(error).__name__)
        with self._wake:
            if sent:
                self._counts.spans_exported += len(spans)
            else:
                self._counts.spans_failed += len(spans)


def otlp_exporter(endpoint: str, timeout_seconds: float = EXPORT_TIMEOUT_SECONDS) -> OTLPSpanExporter:
    """OTLP over gRPC to ``http://host:port`` (plain) or ``https://host:port``; no proxy from the environment.

    Raises ValueError naming ``telemetry.otlp`` for anything else.
    """
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    bare = not parts.username and not parts.password and parts.path in ("", "/") and not parts.query
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None or not bare:
        raise ValueError("telemetry.otlp: not an address; write http://host:4317, https://host:4317, or null")
    return OTLPSpanExporter(
        endpoint=endpoint,
        insecure=parts.scheme == "http",
        timeout=timeout_seconds,
        channel_options=(("grpc.enable_http_proxy", 0),),  # type: ignore[arg-type]
    )
