"""Sites whose daemons are forked from a warm process (see ``zygote``): the same daemon, without its imports."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kblockd.cli.kblockd import kblockd
from tests.harness import ROOT, Site


class Nursery:
    """The warm process; one a test module is enough. ``places`` are where it finds distributions besides,
    ``environment`` is its own."""

    def __init__(self, *places: Path, **environment: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *places))), **environment}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def ask(self, **request: Any) -> Any:
        """One request, one reply."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends it; it kills what it forked."""
        self._process.communicate(timeout=30)


class Forked:
    """A forked daemon, with the methods of ``Popen`` that a site uses."""

    def __init__(self, nursery: Nursery, **request: Any) -> None:
        self._nursery = nursery
        self.pid: int = nursery.ask(**request)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal, or None."""
        code: int | None = self._nursery.ask(poll=self.pid)
        return code

    def wait(self, timeout: float = 60.0) -> int:
        """Until it has ended; raises TimeoutExpired."""
        limit = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired("daemon", timeout)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """To a process that has not been reaped."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait_stopped(self, seconds: float = 60.0) -> None:
        """Until a signal has stopped it; raises TimeoutError."""
        stat = Path(f"/proc/{self.pid}/stat")
        limit = time.monotonic() + seconds
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > limit:
                raise TimeoutError("the daemon does not stop where it was told to")
            time.sleep(0.01)


class ForkedSite(Site):
    """A site that starts its daemons from a nursery."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        super().__init__(folder)
        self.process: Forked | None = None  # type: ignore[assignment]  # what a site uses of Popen
        self._nursery = nursery

    @classmethod
    @contextlib.contextmanager
    def forking(cls, *places: Path, **environment: str) -> Iterator[ForkedSite]:
        """As ``Site.make``; the nursery's ``places`` and ``environment``."""
        nursery = Nursery(*places, **environment)
        folder = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
        site = cls(folder, nursery)
        try:
            yield site
        finally:
            site.kill()
            nursery.close()
            shutil.rmtree(folder, ignore_errors=True)

    def configure(self, upstream_url: str, **changes: Any) -> None:
        """As ``Site.configure``, without the policy's own tests: they would run at each of some hundred starts."""
        super().configure(upstream_url, **changes)
        for tests in (self.config.parent / "policy").rglob("*_test.rego"):
            tests.unlink()

    def command(self, *arguments: str, check: bool = True) -> str:
        """As ``Site.command``, in this process."""
        done = CliRunner().invoke(kblockd, arguments)
        if check and done.exit_code != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {done.exit_code}\n{done.output}") from done.exception
        return done.stdout

    def start(
        self,
        failpoint: str = "",
        *,
        wait: bool = True,
        environment: Mapping[str, str] | None = None,
        watchdog: bool = True,
        constants: Mapping[str, Any] | None = None,
    ) -> None:
        """Kills what still runs, then starts; ``constants`` are set by their dotted names."""
        self.kill()
        self.process = Forked(
            self._nursery,
            config=str(self.config),
            log=str(self.log),
            environment={**(environment or {}), "KBLOCKD_FAILPOINT": failpoint},
            watchdog=watchdog,
            constants=dict(constants or {}),
        )
        if wait:
            self.wait_serving()
