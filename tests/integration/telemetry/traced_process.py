"""A process that traces one run and ends on SIGTERM: ``python -m tests.integration.telemetry.traced_process ENDPOINT``.

Prints ``ready`` when the spans are queued, and ``left`` or ``flushed`` after the exporter is closed.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys

from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.tracing import open_tracing


class RandomIds:
    """As the daemon has them."""

    def new(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_hex(16)}"

    def salt(self) -> str:
        return secrets.token_hex(16)


async def main(endpoint: str) -> None:
    """Runs until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    tracing = open_tracing(endpoint, Sampling(1), RandomIds(), instance="kblockd-1", version="0.1.0", configured={})
    for _ in range(100):
        trace = tracing.begin()
        tracing.admit(trace, "local:agent")
        with trace.stage(9, "consume"):
            await asyncio.sleep(0)
        tracing.finish(trace)
    print("ready", flush=True)
    await stopped.wait()
    print("flushed" if await tracing.aclose(2.0) else "left", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
