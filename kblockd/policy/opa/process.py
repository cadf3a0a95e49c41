"""One OPA process on a Unix socket of its own, serving one bundle file."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.faults import LoadFailed
from kblockd.policy.opa.access import Endpoint
from kblockd.policy.opa.client import Opa
from kblockd.policy.opa.running import Running

# --skip-version-check: no word to anybody outside; other versions call it --disable-telemetry and take this name too.
_FLAGS: Final = ("--skip-version-check", "--log-level=error", "--log-format=text")
_STARTING_POLL_SECONDS: Final = 0.02
_FIRST_WORDS: Final = 2000


@dataclass(frozen=True, slots=True)
class OpaLimits:
    """``policy:`` of the configuration. ``load_seconds`` bounds one start of OPA and one check of a bundle."""

    evaluate_seconds: float = 0.25
    load_seconds: float = 30.0
    memory_mib: int = 512


class OpaProcess:
    """Made by ``spawn``; ``kill`` leaves neither a process nor a socket."""

    def __init__(self, running: Running, socket: Path) -> None:
        self.opa = Opa(Endpoint(socket=str(socket)))
        self._running = running
        self._socket = socket
        self._words = b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(cls, program: Path, bundle: Path, socket: Path, memory_mib: int) -> OpaProcess:
        """Returns before OPA has accepted the bundle; raises ``OSError``."""
        arguments = ("run", "--server", "--addr", f"unix://{socket}", "--unix-socket-perm=600", *_FLAGS)
        running = await Running.start(program, memory_mib, *arguments, "--bundle", str(bundle), folder=bundle.parent)
        return cls(running, socket)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._running.pid

    async def ready(self, revision: str, seconds: float) -> None:
        """Returns once it serves the revision; raises ``LoadFailed`` if it exits or times out."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(PolicyFailure):
                        if await self.opa.revision(seconds) == revision:
                            return
                    if self._running.returncode is not None:
                        await self._listening
                        raise LoadFailed(f"OPA ended with {self._running.returncode}: {self._said()}")
                    await asyncio.sleep(_STARTING_POLL_SECONDS)
        except TimeoutError:
            raise LoadFailed(f"OPA did not serve the policy within {seconds:g} s: {self._said()}") from None

    async def ended(self) -> None:
        """Returns when the process has ended."""
        await asyncio.shield(self._listening)

    async def kill(self) -> None:
        """SIGKILL to the whole group: OPA has no state to save. Idempotent."""
        await self._running.kill()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self.opa.close()
        self._socket.unlink(missing_ok=True)

    async def _listen(self) -> None:
        """Its output must not fill; only the first words are kept, before any question was asked."""
        while part := await self._running.read():
            self._words += part[: max(0, _FIRST_WORDS - len(self._words))]

    def _said(self) -> str:
        words = re.sub(r"[^\x20-\x7e]+", " ", self._words.decode(errors="replace")).strip()
        return words[-500:] or "it said nothing"
