"""The stages of an execution as a timeline: when, how long, and what each left in the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from kblockd.cli.output import cell
from kblockd.domain.outcome import StageEvent

WIDTH: Final = 24
NAMES: Final = (
    "authenticate",
    "admit",
    "replay",
    "decide",
    "await_approval",
    "preflight",
    "lease",
    "read",
    "preconditions",
    "consume",
    "mark_sent",
    "dispatch",
    "classify",
    "reconcile",
    "verify",
    "recover",
    "seal",
)


def timeline(events: Sequence[StageEvent]) -> Table:
    """One line a stage: bars are shares of the longest; waits between records are seen in the offset."""
    table = Table("at", "stage", "took", "", "record", "index", "code", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    longest = max((microseconds for event in events for microseconds in _durations(event)), default=0)
    start = events[0].at if events else None
    for event in events:
        for number, microseconds in event.stages:
            table.add_row("", _stage(number, ""), took(microseconds), bar(microseconds, longest), "", "", "")
        table.add_row(
            _offset(event.at, start),
            _stage(event.stage, event.name),
            took(event.took_microseconds),
            bar(event.took_microseconds, longest),
            cell(event.record_type),
            str(event.ledger_index),
            cell(event.code, "bold"),
        )
    return table


def line(event: StageEvent) -> str:
    """One event of a watched execution."""
    return (
        f"{event.at:%H:%M:%S.%f}  {_stage(event.stage, event.name).plain:<18}{took(event.took_microseconds):>9}"
        f"  {event.record_type} #{event.ledger_index} {event.code}".rstrip()
    )


def took(microseconds: int) -> str:
    """Three significant digits in the unit that fits."""
    if microseconds < 1_000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.3g} ms"
    return f"{microseconds / 1_000_000:.1f} s" if microseconds < 60_000_000 else f"{microseconds / 60_000_000:.1f} min"


def bar(microseconds: int, longest: int) -> Text:
    """A share of the longest stage; whatever took time shows at least a sliver."""
    if not microseconds or not longest:
        return Text("")
    eighths = max(1, round(microseconds / longest * WIDTH * 8))
    full, rest = divmod(eighths, 8)
    return Text("█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest], style="cyan")


def _durations(event: StageEvent) -> list[int]:
    return [event.took_microseconds, *(microseconds for _, microseconds in event.stages)]


def _stage(number: int, name: str) -> Text:
    known = name or (NAMES[number] if number < len(NAMES) else "")
    return cell(f"{number:02d} {known}")


def _offset(at: dt.datetime, start: dt.datetime | None) -> str:
    return f"+{(at - start).total_seconds():.3f} s" if start is not None else ""
