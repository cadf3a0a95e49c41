"""A site whose daemons stand on a disk that can lose power and fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.crash.daemon.forked import ForkedSite, Nursery
from tests.crash.daemon.story import ATTEMPTS, EFFECT_FREE, World, variant
from tests.crash.power.disk import Disk
from tests.harness import ROOT
from tests.upstreams.payments import PaymentsServer

CONTRACTS = {"production": variant("production", ATTEMPTS), "free": variant("free", ATTEMPTS, EFFECT_FREE)}


class WatchedNursery(Nursery):
    """With the library loaded, and one of the ``mutants`` when it is named."""

    def __init__(self, shim: Path, mutant: str = "") -> None:
        command = [sys.executable, str(Path(__file__).with_name("mutants.py")), mutant]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(shim)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"


class PoweredSite(ForkedSite):
    """``disk`` watches the data directory of every daemon that is started here."""

    def __init__(self, folder: Path, nursery: Nursery, shim: Path) -> None:
        super().__init__(folder, nursery)
        self.data.mkdir(mode=0o700)
        self.disk = Disk(self.data, folder / "disk", shim)

    def start(
        self,
        failpoint: str = "",
        *,
        wait: bool = True,
        environment: Mapping[str, str] | None = None,
        watchdog: bool = True,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        super().start(
            failpoint,
            wait=wait,
            environment={**self.disk.environment(), **(environment or {})},
            watchdog=watchdog,
            constants=constants,
        )


@contextlib.contextmanager
def powered_world(shim: Path, mutant: str = "") -> Iterator[tuple[World, Disk]]:
    """A configured site that has never been started, and its upstream."""
    nursery = WatchedNursery(shim, mutant)
    folder = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
    site = PoweredSite(folder, nursery, shim)
    try:
        with PaymentsServer.start(folder) as payments:
            site.configure(payments.url, contracts=CONTRACTS)
            site.pin()
            site.disk.begin()  # keys and folders were made by others: they count as durable
            yield World(site, payments), site.disk
    finally:
        site.kill()
        nursery.close()
        shutil.rmtree(folder, ignore_errors=True)
