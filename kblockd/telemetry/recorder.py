"""The cheap recorder: tuples on the hot path, spans after the answer has gone.

An execution carries one ``Trace``; each stage adds one tuple. Whether a trace is exported is decided late: a parent's
sampled flag (configured principals only), the ratio, or an outcome that is always worth a trace (errors, unknown,
held). Source: stack.md, Tracing; TRC.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

Attributes = Mapping[str, str | int | bool]


@dataclass(slots=True)
class StageRow:
    """One stage: number, name, start and end in wall-clock nanoseconds, attributes, and an error code or empty."""

    stage: int
    name: str
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, str | int | bool] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class Trace:
    """What one execution leaves behind for the exporter. ``trace_id``/``parent_span_id`` are lowercase hex or empty."""

    trace_id: str = ""
    parent_span_id: str = ""
    sampled: bool = False
    tracestate: str = ""
    attributes: dict[str, str | int | bool] = field(default_factory=dict)
    rows: list[StageRow] = field(default_factory=list)

    @contextmanager
    def stage(self, number: int, name: str) -> Iterator[StageRow]:
        """Records one stage; an exception leaves its reason (or class name) as the error code and goes on."""
        row = StageRow(number, name, time.time_ns())
        self.rows.append(row)
        try:
            yield row
        except BaseException as error:
            row.error = str(getattr(error, "reason", "") or type(error).__name__)
            raise
        finally:
            row.end_ns = time.time_ns()
