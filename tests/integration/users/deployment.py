"""The deployment that config/README.md documents for callers of other users, laid out below one folder.

/etc/kblockd of root, readable for the daemon's group; /var/lib/kblockd of the daemon alone; /run/kblockd that anybody
may pass through and nobody may list; a group for each owner's sockets, in which the daemon is, too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.harness import Site
from tests.integration.users.accounts import User

AGENTS, LEADS = 64_302, 64_303
DAEMON = User(64_300, 64_300, (AGENTS, LEADS))
AGENT = User(64_312, 64_312, (AGENTS,))
LEAD = User(64_313, 64_313, (LEADS,))
STRANGER = User(64_314, 64_314)
USERS: Mapping[str, User] = {"agent": AGENT, "lead": LEAD, "stranger": STRANGER}
GROUPS = {"agent": AGENTS, "lead": LEADS}


class Deployment(Site):
    """A ``Site`` whose daemon runs as a user of its own, by an ``interpreter`` that every user may run."""

    interpreter: Path

    def lay_out(self, upstream_url: str, listeners: Mapping[str, tuple[str, int | None]] | None = None) -> None:
        """Configures, pins, and gives everything to whom it belongs."""
        self.configure(upstream_url, daemon={"clocks": {"lease_ttl_seconds": 30, "close_after_seconds": 120}})
        self.listen({"agent": ("0660", AGENTS), "lead": ("0660", LEADS), **(listeners or {})})
        self.pin()
        self.folder.chmod(0o711)
        (self.folder / "run").chmod(0o711)
        for path in (self.config.parent, *self.config.parent.rglob("*")):
            os.chown(path, 0, DAEMON.gid)
            path.chmod(0o750 if path.is_dir() else 0o640)
        for top in (self.data, self.folder / "run"):
            for path in (top, *top.rglob("*")):
                os.chown(path, DAEMON.uid, DAEMON.gid)

    def listen(self, given: Mapping[str, tuple[str, int | None]]) -> None:
        """Mode and group of the sockets that are named; the others stay the daemon's own."""
        document = json.loads(self.config.read_text())
        for listener in document["listeners"]:
            mode, group = given.get(Path(listener["unix"]).stem, ("0600", None))
            listener["mode"] = mode
            listener.pop("group", None)
            if group is not None:
                listener["group"] = group
        self.config.write_text(json.dumps(document))

    def serve(self) -> None:
        """As the daemon's user, until it serves; raises RuntimeError with its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                DAEMON.command(*self._serve()), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/"
            )
        self.wait_serving()

    def refused(self) -> str:
        """What a start says that is refused."""
        done = DAEMON.run(*self._serve())
        assert done.returncode == 1, done.stderr
        assert not list((self.folder / "run").iterdir())
        return done.stderr

    def script(self, user: User, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a script as that user."""
        return user.run(str(self.interpreter), "-c", text, *arguments)

    def _serve(self) -> tuple[str, ...]:
        return str(self.interpreter), "-m", "kblockd", "serve", "--config", str(self.config)
