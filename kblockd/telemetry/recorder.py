"""A cheap recorder: rows on the hot path, spans only after the answer has been sent.

An execution carries one ``Trace``; each stage adds one row. Whether a trace is exported is decided late: by the flag of
the parent (configured principals only), the ratio, or an outcome that always deserves a trace (error, unknown, held).
Nothing here touches OpenTelemetry's context, so no span can leak into another task (OTL-03).
Source: kblockd/telemetry/README.md#cost; R508 to R532.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from kblockd.domain.clock import paired
from kblockd.domain.errors import Reason

Value = str | int | bool
Attributes = Mapping[str, Value]
Nanoseconds = Callable[[], int]

MAX_ROWS: Final = 512  # per trace; an endless poll must not exhaust memory
_APART_NS: Final = 100_000
_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # odd, so that every row of a trace gets a different span id


class SteadyClock:
    """Wall-clock nanoseconds at creation plus monotonic time: a jump of the wall clock cannot make a span negative."""

    __slots__ = ("_monotonic_ns", "_offset")

    def __init__(self, wall_ns: Nanoseconds = time.time_ns, monotonic_ns: Nanoseconds = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        moment, wall = paired(monotonic_ns, wall_ns, _APART_NS)
        self._offset = wall - moment

    def __call__(self) -> int:
        return self._offset + self._monotonic_ns()


@dataclass(slots=True)
class StageRow:
    """A future span: number, name, start and end in wall-clock nanoseconds, attributes, and an error code or "".

    As a context manager it records its end, and for an exception its reason (or class name) as the error code, without
    suppressing it. ``end_ns`` is 0 while it is open. ``sequence`` is its place in the trace, ``parent`` the sequence of
    the enclosing row (0: the root).
    """

    stage: int
    name: str
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""
    sequence: int = 0
    parent: int = 0
    clock: Nanoseconds = field(default=time.time_ns, repr=False, compare=False)

    def __enter__(self) -> StageRow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.error = error_code(error)
        self.end_ns = self.clock()


@dataclass(slots=True)
class Trace:
    """The rows of one execution, for the exporter. ``trace_id`` and ``parent_span_id`` are lowercase hex or empty.

    ``root_span_id`` is the span id of ``kblock.execution``. ``parent_sampled`` is the caller's flag, None without a
    caller's context; ``sampled`` is the decision at the start, which upstreams receive.
    """

    trace_id: str = ""
    parent_span_id: str = ""
    sampled: bool = False
    tracestate: str = ""
    attributes: dict[str, Value] = field(default_factory=dict)
    rows: list[StageRow] = field(default_factory=list)
    root_span_id: str = ""
    parent_sampled: bool | None = None
    clock: Nanoseconds = field(default_factory=SteadyClock, repr=False, compare=False)
    start_ns: int = 0
    end_ns: int = 0
    unkept: int = 0  # rows beyond MAX_ROWS
    sequence: int = 0

    def __post_init__(self) -> None:
        self.start_ns = self.start_ns or self.clock()

    def stage(self, number: int, name: str) -> StageRow:
        """Records one stage, used with ``with``; entering a stage again adds another row."""
        return self._row(number, name, 0)

    def nested(self, row: StageRow, name: str) -> StageRow:
        """Records something inside a stage: ``poll`` (one iteration) or ``upstream_call`` (one adapter call)."""
        return self._row(row.stage, name, row.sequence)

    def open_row(self) -> StageRow | None:
        """The innermost row that has not ended; stages of one execution never overlap."""
        return next((row for row in reversed(self.rows) if not row.end_ns), None)

    def note(self, name: str, value: Value) -> None:
        """Sets an attribute of the contract on the innermost open row, or on the root when none is open."""
        row = self.open_row()
        (self.attributes if row is None else row.attributes)[name] = value

    def span_id(self, row: StageRow | None = None) -> str:
        """The span id of a row (of the root without one), 16 lowercase hex digits; empty before the trace has ids."""
        if not self.root_span_id:
            return ""
        sequence = row.sequence if row is not None else 0
        number = (int(self.root_span_id, 16) + sequence * _GOLDEN) & _MASK
        return f"{number or 1:016x}"

    def _row(self, number: int, name: str, parent: int) -> StageRow:
        self.sequence += 1
        row = StageRow(number, name, self.clock(), sequence=self.sequence, parent=parent, clock=self.clock)
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        else:
            self.unkept += 1
        return row


def error_code(error: BaseException) -> str:
    """A stable word for an exception, never its text: many libraries put free text in an attribute ``reason``."""
    reason = getattr(error, "reason", None)
    return reason.value if isinstance(reason, Reason) else type(error).__name__
