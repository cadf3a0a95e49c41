"""The end of a process with spans queued: real processes, real SIGTERM."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstreams.otlp_receiver import OtlpReceiver

ROOT = Path(__file__).parents[3]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def black_hole() -> Iterator[str]:
    """Connects, and then says nothing ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def run_and_terminate(endpoint: str) -> tuple[str, int, float]:
    """What the process said after SIGTERM, its exit code, and the seconds that its end took."""
    command = [sys.executable, "-m", "tests.integration.telemetry.traced_process", endpoint]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        return said.strip(), process.returncode, time.monotonic() - began
    finally:
        process.kill()
        process.wait()


def test_otl_01_a_black_holed_collector_does_not_hold_the_exit(black_hole: str) -> None:
    said, code, seconds = run_and_terminate(black_hole)
    assert (said, code) == ("left", 0)
    assert seconds < 30


def test_otl_01_a_collector_that_refuses_does_not_hold_the_exit() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can take the port
        said, code, seconds = run_and_terminate(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert (said, code) == ("left", 0)
    assert seconds < 30


def test_otl_07_spans_of_the_last_run_arrive_at_exit(receiver: OtlpReceiver) -> None:
    said, code, _ = run_and_terminate(receiver.endpoint)
    assert (said, code) == ("flushed", 0)
    names = Counter(span.name for span in receiver.spans())
    assert names == {"kblock.execution": 100, "kblock.consume": 100}
