"""Cases through children, one after another; a child that dies or takes too long is killed and replaced."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kblockd.policy.embedded import frames
from tests.conformance.cases import Case

SECONDS = 5.0
ROOT = Path(__file__).parents[2]


def answers(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """One for each case, in order: the child's, or ``killed`` with the reason."""
    child = None
    try:
        for case in cases:
            child = child or _Child()
            try:
                yield child.ask(case)
            except (OSError, EOFError) as error:
                child.kill()
                child = None
                yield {"killed": type(error).__name__}
    finally:
        if child:
            child.kill()


class _Child:
    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.conformance.child"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
                env={"MIMALLOC_ARENA_RESERVE": "32MiB"},  # as the policy worker has it
            )
        self._ours.settimeout(60)  # the first answer also waits for the start
        self.ask(Case("start", "true", (), {}, None, False, False, {}))
        self._ours.settimeout(SECONDS)

    def ask(self, case: Case) -> dict[str, Any]:
        self._ours.sendall(frames.pack({}, json.dumps(asdict(case)).encode()))
        (length,) = frames.LENGTH.unpack(self._exactly(frames.LENGTH.size))
        return frames.unpack(self._exactly(length))[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._ours.close()

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            if not (part := self._ours.recv(length - len(found))):
                raise EOFError
            found += part
        return found
