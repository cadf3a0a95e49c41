"""Forks daemons from one process that has imported everything, so that a start costs no imports (1.3 s each).

What is forked is ``kblockd.daemon.run`` in a process of its own: real sockets, real store, a real SIGKILL. One line of
JSON a request on standard input, one a reply on standard output; when the input ends, what was forked is killed.

Besides the failpoints of the daemon, ``POINT=stop[@n]`` stops the whole process there (SIGSTOP), as a hypervisor or a
debugger would. A request may set constants by their dotted names and switch the watchdog off.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import kblockd_mcp.adapter

import kblockd.daemon
from kblockd.failpoints import EnvironmentFailpoints

assert kblockd_mcp.adapter  # imported for its children: the plugin and the SDK under it
_STOP = re.compile(r"(?P<point>[0-9a-z_.]+:[a-z]+)=stop(?:@(?P<nth>[1-9][0-9]*))?")


class StoppingFailpoints(EnvironmentFailpoints):
    """The daemon's failpoints, and ``stop``."""

    def __init__(self, text: str) -> None:
        rules = [rule for rule in text.split(";") if rule]
        stops = [match for rule in rules if (match := _STOP.fullmatch(rule))]
        self._stops = {match["point"]: int(match["nth"] or 1) for match in stops}
        super().__init__(";".join(rule for rule in rules if not _STOP.fullmatch(rule)))

    async def reach(self, point: str) -> None:
        self._stop(point)
        await super().reach(point)

    def reach_blocking(self, point: str) -> None:
        self._stop(point)
        super().reach_blocking(point)

    def _stop(self, point: str) -> None:
        left = self._stops.get(point)
        if left is not None:
            self._stops[point] = left - 1
            if left == 1:
                os.kill(os.getpid(), signal.SIGSTOP)


def _become_daemon(request: dict[str, Any]) -> None:
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(ours, standard)
    os.environ.update(request["environment"])
    kblockd.daemon.EnvironmentFailpoints = StoppingFailpoints  # type: ignore[misc]
    for name, value in request["constants"].items():
        module, _, constant = name.rpartition(".")
        owner = importlib.import_module(module)
        getattr(owner, constant)  # one that is not there would bound nothing
        setattr(owner, constant, value)
    if not request["watchdog"]:
        kblockd.daemon.Watchdog.start = lambda _: None  # type: ignore[method-assign]  # so that the lease is alone
    code = 1
    try:
        code = kblockd.daemon.run(Path(request["config"]))
    except BaseException:
        traceback.print_exc()  # a start that is refused says so, as the command would
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Until standard input ends."""
    running: dict[int, int | None] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "config" in request:
            pid = os.fork()
            if pid == 0:
                _become_daemon(request)
            running[pid] = None
            print(pid, flush=True)
            continue
        pid = request["poll"]
        if running[pid] is None:
            done, status = os.waitpid(pid, os.WNOHANG)
            running[pid] = os.waitstatus_to_exitcode(status) if done else None
        print(json.dumps(running[pid]), flush=True)
    for pid, code in running.items():
        if code is None:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
