"""``kblockd`` with a sampler of its loop's thread, switched by signals.

``python -m tests.bench.profiled FILE serve --config …``: SIGUSR1 begins, SIGUSR2 ends and writes FILE. The daemon
itself knows nothing of it. Samples come with the kernel's ticks while the process works, and each weighs what its
thread has used since the last one, so that neither waiting nor other threads nor the sampling itself distort it. C
code counts for the function that called it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import defaultdict
from types import CodeType, FrameType

from kblockd.cli.kblockd import kblockd


class Sampler:
    """Stacks of the main thread, innermost function first, and the seconds of CPU time that fell to each."""

    def __init__(self) -> None:
        self._stacks: defaultdict[tuple[CodeType, ...], float] = defaultdict(float)
        self._last = 0.0

    def begin(self, _: int, __: FrameType | None) -> None:
        """A signal handler."""
        self._last = time.thread_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        stack = []
        while frame is not None:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._stacks[tuple(stack)] += now - self._last
        self._last = now

    def write(self, target: str) -> None:
        """[[seconds, [[file, line, name], …]], …]; the file is whole when it is there."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [
            [seconds, [[code.co_filename, code.co_firstlineno, code.co_qualname] for code in stack]]
            for stack, seconds in self._stacks.items()
        ]
        with open(f"{target}.new", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        os.replace(f"{target}.new", target)


def main() -> None:
    """Never returns."""
    target, *arguments = sys.argv[1:]
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, sampler.begin)
    signal.signal(signal.SIGUSR2, lambda *_: sampler.write(target))
    kblockd(arguments, prog_name="kblockd")


if __name__ == "__main__":
    main()
