"""The stages of an execution as a timeline: when, how long, and their ledger records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kblockd.cli.output import cell
from kblockd.domain.outcome import StageEvent

WIDTH: Final = 24
NARROW: Final = 8
_HEAD: Final = tuple(Text(name) for name in ("at", "stage", "took", "record", "#", "code"))
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


@dataclass(slots=True)
class TimelineStep:
    """A stage that ran, or a further record of the stage above it (``further``); ``took`` is None while unknown."""

    stage: int
    name: str = ""
    took: int | None = None
    event: StageEvent | None = None
    further: bool = False


def steps(events: Sequence[StageEvent]) -> list[TimelineStep]:
    """One step per stage and run, in order.

    A record is written before its stage ends, so the stage's own duration comes first among those in the next record;
    after a kill the next record begins with another stage, and the duration remains unknown.
    """
    timeline: list[TimelineStep] = []
    unended = 0
    for event in events:
        ended = list(event.stages)
        if ended and (own := _own(timeline[unended:], ended[0][0])) is not None:
            own.took = ended.pop(0)[1]
        if event.stages:
            timeline += [TimelineStep(number, took=microseconds) for number, microseconds in ended]
            unended = len(timeline)
        further = bool(timeline[unended:]) and timeline[-1].stage == event.stage
        timeline.append(TimelineStep(event.stage, event.name, event=event, further=further))
    return timeline


def _own(candidates: Sequence[TimelineStep], stage: int) -> TimelineStep | None:
    return next((step for step in reversed(candidates) if step.stage == stage and not step.further), None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Fits the available width: bars are shares of the longest stage, and codes are truncated, never wrapped."""

    events: Sequence[StageEvent]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        run = steps(self.events)
        start = self.events[0].at if self.events else None
        rows = [_texts(step, start) for step in run]
        widths = [max(len(row[column].plain) for row in [_HEAD, *rows]) for column in range(len(_HEAD))]
        free = options.max_width - sum(widths[:-1]) - len(_HEAD)
        bars = max(NARROW, min(WIDTH, free - widths[-1]))
        widths[-1] = max(NARROW, min(widths[-1], free - bars))
        longest = max((step.took or 0 for step in run), default=0)
        yield _row(_HEAD, Text(""), widths, bars)
        for row, step in zip(rows, run, strict=True):
            yield _row(row, bar(step.took or 0, longest, bars), widths, bars)


def _texts(step: TimelineStep, start: dt.datetime | None) -> tuple[Text, ...]:
    event = step.event
    stage = Text("") if step.further else _stage(step.stage, step.name)
    duration = Text("" if step.took is None else took(step.took))
    if event is None:
        return (Text(""), stage, duration, Text(""), Text(""), Text(""))
    code = cell(event.code, "bold")
    return (
        Text("" if start is None else f"+{(event.at - start).total_seconds():.3f} s"),
        stage,
        duration,
        cell(event.record_type),
        Text(str(event.ledger_index)),
        code,
    )


def _row(texts: Sequence[Text], bars: Text, widths: Sequence[int], bar_width: int) -> Text:
    at, stage, duration, record, index, code = (text.copy() for text in texts)
    for text, width in ((at, widths[0]), (duration, widths[2]), (index, widths[4])):
        text.align("right", width)
    for text, width in ((stage, widths[1]), (record, widths[3]), (code, widths[5])):
        text.truncate(width, overflow="ellipsis")
    padded = bars.copy()
    for text, width in ((stage, widths[1]), (record, widths[3]), (padded, bar_width)):
        text.align("left", width)
    line = Text(" ", no_wrap=True, overflow="crop").join((at, stage, duration, padded, record, index, code))
    line.rstrip()
    return line


def line(event: StageEvent) -> str:
    """One line for one event of a watched execution."""
    stage = _stage(event.stage, event.name).plain
    return f"{event.at:%H:%M:%S.%f}  {stage:<18} {event.record_type} #{event.ledger_index} {event.code}".rstrip()


def took(microseconds: int) -> str:
    """Three significant digits in a suitable unit."""
    if microseconds < 1_000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.3g} ms"
    return f"{microseconds / 1_000_000:.1f} s" if microseconds < 60_000_000 else f"{microseconds / 60_000_000:.1f} min"


def bar(microseconds: int, longest: int, width: int = WIDTH) -> Text:
    """A share of the longest stage; any duration above zero shows at least a sliver."""
    if not microseconds or not longest:
        return Text("")
    eighths = max(1, round(microseconds / longest * width * 8))
    full, partial = divmod(eighths, 8)
    return Text("█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[partial], style="cyan")


def _stage(number: int, name: str) -> Text:
    known = name or (NAMES[number] if number < len(NAMES) else "")
    return cell(f"{number:02d} {known}")
