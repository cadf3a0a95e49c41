"""Who may end the loop: the work itself, and nobody else (RPC-03)."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from kblockd.ending import EXIT_FAILED, run_alone


def test_what_the_work_returns_and_raises_goes_through() -> None:
    async def returns() -> int:
        return 7

    async def raises(error: BaseException) -> int:
        await asyncio.sleep(0)
        raise error

    assert run_alone(returns()) == 7
    for error in (ValueError("x"), SystemExit(3), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised:
            run_alone(raises(error))
        assert raised.value is error


STRAY = """
import asyncio
from kblockd.ending import run_alone

async def work():
    async def stray():
        raise {error}
    task = asyncio.create_task(stray())
    try:
        await asyncio.sleep(60)
    finally:
        print("closed")

run_alone(work())
"""


@pytest.mark.parametrize("error", ["SystemExit(0)", "KeyboardInterrupt()"])
def test_what_another_task_raises_ends_the_process_before_anything_is_closed(error: str) -> None:
    done = subprocess.run([sys.executable, "-c", STRAY.format(error=error)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (EXIT_FAILED, "")
    assert "from a foreign task" in done.stderr
