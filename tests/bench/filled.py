"""A store that already holds many executions, beside an empty one: the same figures, and how long a start takes.

Building it takes minutes and gigabytes, so it is kept where ``--keep`` says and used again; each run adds to it what
it measures. It is read through the page cache, as on a machine with memory to spare for it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import uvloop

from tests.bench import copies, variants
from tests.bench.daemon import BenchSite, Start, Subject, measure
from tests.bench.figures import Measured
from tests.bench.servers import Counterparts
from tests.bench.syncs import Syncs
from tests.bench.variants import PLAIN

_STARTS: Final = 3
_ORIGINALS_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Compared:
    """The empty store and the filled one; starts after a clean stop."""

    empty: Measured
    filled: Measured
    empty_starts: list[Start]
    filled_starts: list[Start]


def run(with_: Counterparts, executions: int, keep: Path | None) -> Compared:
    """Measured in turn, at every number of callers."""
    with _folder(keep) as folder, BenchSite.make() as empty:
        full = BenchSite(folder)
        held, seconds = hold(full, with_, executions)
        variants.prepare(empty, PLAIN, with_)
        empty.start()
        empty.stop()
        subjects = [
            Subject(Measured("an empty store"), empty, Syncs(empty.folder)),
            Subject(Measured(f"a store of {held} executions"), full, Syncs(full.folder)),
        ]
        try:
            starts = [_starts(subject) for subject in subjects]
            found = measure(subjects, with_)
            full.stop(600)
        finally:
            full.kill()
        size = sum(file.stat().st_size for file in (full.data / "store").iterdir()) / (1 << 30)
        found[1].notes.append(f"store/ {size:.1f} GiB, {'there before' if not seconds else f'made in {seconds:.0f} s'}")
    return Compared(found[0], found[1], *starts)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield keep.resolve()
        return
    name = tempfile.mkdtemp(prefix="kb-", dir="/tmp")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)


def hold(site: BenchSite, with_: Counterparts, executions: int) -> tuple[int, float]:
    """At least that many in the store of a site that does not run; how many, and the seconds that filling took."""
    shutil.rmtree(site.config.parent / "policy", ignore_errors=True)  # it may be an earlier version's
    variants.prepare(site, PLAIN, with_)
    note = site.folder / "executions"
    held = int(note.read_text()) if note.exists() else 0
    if held >= executions:
        return held, 0.0
    if not held:
        _originals(site, with_)
    began = time.perf_counter()
    uvloop.run(copies.fill(site.data, executions - held, _progress(executions - held)))
    note.write_text(str(executions))
    return executions, time.perf_counter() - began


def _originals(site: BenchSite, with_: Counterparts) -> None:
    """Real executions to copy."""
    site.start()
    subject = Subject(Measured("originals"), site, Syncs(site.folder))
    subject.load(replace(with_, seconds=_ORIGINALS_SECONDS), 16)
    site.stop()


def _progress(number: int) -> Callable[[int], None]:
    began, last = time.perf_counter(), [0]

    def tell(done: int) -> None:
        if 10 * done // number > 10 * last[0] // number:
            seconds = time.perf_counter() - began
            print(f"  {done} of {number} executions in {seconds:.0f} s", file=sys.stderr, flush=True)
        last[0] = done

    return tell


def _starts(subject: Subject) -> list[Start]:
    """Some, one after the other; the last one goes on."""
    found = [subject.site.start_measured(subject.syncs.environment)]
    while len(found) < _STARTS:
        subject.site.stop()
        found.append(subject.site.start_measured(subject.syncs.environment))
    return found
