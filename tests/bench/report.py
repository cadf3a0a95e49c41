"""What is printed: one table a variant, then the aims beside what was reached."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from kblockd.domain.stages import named
from tests.bench.figures import Figures, Measured
from tests.bench.filled import Compared
from tests.bench.load import percentile
from tests.bench.profile import Profile
from tests.bench.questions import Cost
from tests.bench.reload import CALLERS, Reloads

_SHARES: Final = (("p50", 0.5), ("p99", 0.99), ("slowest", 1.0))
_HEAD: Final = (
    "  callers  calls/s   p50 ms   p99 ms | CPU ms each: daemon  (loop) policy upstream   load | syncs each "
    "| others' CPU | faults"
)


def floors(syncs: float, echoes: Sequence[Figures], bare: Sequence[Figures]) -> str:
    """The floors of this run."""
    lines = [f"floors: {syncs:.0f} fdatasync/s of 2 KB, {1000 / syncs:.2f} ms each", _HEAD]
    for name, found in (("grpc.aio echo", echoes), ("bare upstream", bare)):
        lines += [f"{_line(figures)} {name}" for figures in found]
    return "\n".join(lines)


def variant(measured: Measured) -> str:
    """Rate, latency, CPU time, syncs and faults by number of callers, memory, and what stages take."""
    lines = [f"\n{measured.name}", _HEAD, *map(_line, measured.figures.values())]
    lines.append(f"  daemon {measured.resident_mib:.0f} MiB resident, {measured.highest_mib:.0f} MiB at most")
    lines += [f"  {note}" for note in measured.notes]
    return "\n".join([*lines, *_stages(measured)])


def profile(found: Profile, executions: int) -> str:
    """CPU time of the loop's thread, in microseconds an execution."""

    def line(name: str, seconds: float) -> str:
        each, share = 1e6 * seconds / max(1, executions), 100 * seconds / max(found.seconds, 1e-9)
        return f"    {each:8.0f} us {share:5.1f} %  {name}"

    parts = (
        ("in the stages, with everything below them", found.stages()),
        ("outside of the stages, by the outermost function", found.elsewhere()),
        ("own time by package", found.packages()),
        ("own time by function", found.functions()),
    )
    lines = [f"\nprofile: CPU time of the loop's thread, {executions} executions, {found.number} stacks"]
    for title, shares in parts:
        lines.append(f"  {title}")
        lines += [line(name, seconds) for name, seconds in shares]
    return "\n".join(lines)


def compared(found: Compared) -> str:
    """The filled store as a ratio to the empty one: of the rate, and of the daemon's CPU time, which is steadier."""
    lines = [variant(found.empty), variant(found.filled), "  filled to empty"]
    for callers, figures in found.filled.figures.items():
        lines.append(f"    {callers:5} callers: {_ratio(figures, found.empty.figures[callers])}")
    for name, starts in (("empty", found.empty_starts), ("filled", found.filled_starts)):
        each = ", ".join(f"{start.seconds:.2f} ({start.cpu_seconds:.2f})" for start in starts)
        lines.append(f"  start after a clean stop, {name}, seconds (CPU of the daemon): {each}")
    if (many := found.filled.at(64)) is not None:
        rate, _, cpu = _ratios(many, found.empty.figures[64])
        lines.append(_aim("of the empty store's rate at 64 callers", rate, 0.9, ">="))
        lines.append(_aim("of the CPU time on the empty store at 64 callers", cpu, 1.1, "<="))
    median = statistics.median(start.seconds for start in found.filled_starts)
    return "\n".join([*lines, _aim("s for the filled store to start (median)", median, 2, "<=")])


def _ratio(figures: Figures, base: Figures) -> str:
    rate, p50, cpu = _ratios(figures, base)
    return f"rate {rate:.2f}   p50 {p50:.2f}   daemon's CPU time {cpu:.2f}"


def _ratios(figures: Figures, base: Figures) -> tuple[float, float, float]:
    """Of the rate, of p50 and of the daemon's CPU time an execution."""

    def ratio(found: float, known: float) -> float:
        return found / max(known, 1e-9)

    return (
        ratio(figures.seen.rate, base.seen.rate),
        ratio(figures.seen.percentile(0.5), base.seen.percentile(0.5)),
        ratio(figures.cpu_each("daemon").total, base.cpu_each("daemon").total),
    )


def engines(found: Sequence[Measured]) -> str:
    """Each engine as a ratio to the first, which is the embedded one."""
    base, *others = found
    lines = [variant(measured) for measured in found]
    for measured in others:
        lines.append(f"  {measured.name}, as a ratio to the embedded engine")
        for callers, figures in measured.figures.items():
            lines.append(f"    {callers:5} callers: {_ratio(figures, base.figures[callers])}")
    for measured in others:
        if (many := measured.at(64)) is not None and (known := base.at(64)) is not None:
            named = f"of the embedded engine's rate at 64 callers: {measured.name}"
            lines.append(_aim(named, _ratios(many, known)[0], 0.5, ">="))
    return "\n".join(lines)


def questions(costs: Sequence[Cost]) -> str:
    """Microseconds of one question, by engine and size of the policy's data."""
    lines = [
        "\none question after the other, microseconds each",
        "  engine       data   median      p99 | CPU: asker   engine | checked and loaded in",
    ]
    lines += [
        f"  {cost.engine:10} {cost.data:>6} {cost.median_us:8.0f} {cost.p99_us:8.0f} |"
        f" {cost.asking_us:10.0f} {cost.answering_us:8.0f} | {cost.load_seconds:.1f} s"
        for cost in costs
    ]
    return "\n".join(lines)


def reloads(found: Reloads) -> str:
    """Whether a reload delays executions: those that met one beside those that did not."""
    lines = [f"\nreload under load, {CALLERS} callers: {', '.join(f'{one:.1f}' for one in found.seconds)} s each"]
    for name, took in (("met no reload", found.calm), ("met a reload", found.met)):
        shares = "   ".join(f"{title} {percentile(took, share):.0f}" for title, share in _SHARES)
        lines.append(f"  {len(took):6} executions {name:14} ms: {shares}")
    return "\n".join([*lines, f"  faults {found.faults or 0}"])


def aims(plain: Measured, bare: Sequence[Figures]) -> str:
    """What the plain run should reach, and what it did; nothing depends on it."""
    rows: list[tuple[str, float, float, str]] = []
    if (many := plain.at(64)) is not None:
        rows.append(("executions/s at 64 callers", many.seen.rate, 500, ">="))
        if many.syncs_each is not None:
            rows.append(("fdatasyncs an execution at 64 callers", many.syncs_each, 1.2, "<="))
    alone = next((figures for figures in bare if figures.callers == 1), None)
    if (one := plain.at(1)) is not None and alone is not None:
        above = one.seen.percentile(0.5) - alone.seen.percentile(0.5)
        rows.append(("ms p50 above the bare upstream at 1 caller", above, 8, "<="))
    rows.append(("MiB resident at most", plain.highest_mib, 300, "<="))
    return "\n".join(["\naims, plain run", *(_aim(*row) for row in rows)])


def _aim(name: str, found: float, limit: float, sign: str) -> str:
    reached = found >= limit if sign == ">=" else found <= limit
    return f"  {'reached' if reached else 'MISSED ':7}  {found:8.2f}  {sign} {limit:g}  {name}"


def _line(figures: Figures) -> str:
    """Without a counter of syncs, and where nobody was there to use CPU time, a dash."""
    seen = figures.seen
    daemon = figures.cpu_each("daemon")
    each = [daemon.total, daemon.loop, *(figures.cpu_each(name).total for name in ("policy", "upstream", "load"))]
    cells = [f"{value:.2f}" if value else "-" for value in each]
    syncs = "-" if figures.syncs_each is None else f"{figures.syncs_each:.2f}"
    return (
        f"  {figures.callers:7} {seen.rate:8.0f} {seen.percentile(0.5):8.1f} {seen.percentile(0.99):8.1f} |"
        f"{cells[0]:>20} {cells[1]:>7} {cells[2]:>6} {cells[3]:>8} {cells[4]:>6} |{syncs:>11} "
        f"|{figures.others:10.0%}  | {dict(seen.faults) or 0}"
    )


def _stages(measured: Measured) -> list[str]:
    """Median wall time; a stage that waits in a queue shows the queue."""
    found = list(measured.figures.values())
    numbers = sorted({number for figures in found for number in figures.stages})
    if not numbers:
        return []
    heads = "".join(f"{figures.callers:>8}" for figures in found)
    lines = [f"  stage, median us of wall time at callers{heads}"]
    for number in numbers:
        cells = "".join(f"{statistics.median(figures.stages.get(number, [0])):8.0f}" for figures in found)
        lines.append(f"    {number:02} {named(number):33}{cells}")
    return lines
