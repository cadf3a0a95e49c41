"""``kblockd`` with a count of its loop's thread, switched by signals: bytecodes and Python calls, by function.

``python -m tests.bench.counted FILE serve --config …``: SIGUSR1 begins, SIGUSR2 ends and writes FILE. What is counted
does not depend on what else the machine does. A coroutine that goes on counts as a call, as it does for the
interpreter. The daemon takes several times as long meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from kblockd.cli.kblockd import kblockd


class Steps:
    """Of the thread that begins: by the identity of the code, whose hash goes through all of its constants."""

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._bytecodes: Counter[int] = Counter()
        self._calls: Counter[int] = Counter()

    def begin(self, _: int, __: FrameType | None) -> None:
        """A signal handler."""
        sys.settrace(self._tracer())

    def _tracer(self) -> Callable[[FrameType, str, Any], Any]:
        codes, bytecodes, calls = self._codes, self._bytecodes, self._calls

        def step(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                bytecodes[id(frame.f_code)] += 1
            return step

        def enter(frame: FrameType, _: str, __: Any) -> Any:
            code = frame.f_code
            codes[id(code)] = code
            calls[id(code)] += 1
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return step

        return enter

    def write(self, target: str) -> None:
        """[[file, line, name, bytecodes, calls], …]; the file is whole when it is there."""
        sys.settrace(None)
        rows = [
            [code.co_filename, code.co_firstlineno, code.co_qualname, self._bytecodes[known], self._calls[known]]
            for known, code in self._codes.items()
        ]
        with open(f"{target}.new", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        os.replace(f"{target}.new", target)


def main() -> None:
    """Never returns."""
    target, *arguments = sys.argv[1:]
    steps = Steps()
    signal.signal(signal.SIGUSR1, steps.begin)
    signal.signal(signal.SIGUSR2, lambda *_: steps.write(target))
    kblockd(arguments, prog_name="kblockd")


if __name__ == "__main__":
    main()
