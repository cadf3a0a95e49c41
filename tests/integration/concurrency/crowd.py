"""A site whose contracts are let through at once, crowds of callers in processes of their own, and what happened."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.daemon.forked import ForkedSite
from tests.harness import ROOT, refund_contract
from tests.records import Record, RecordType, read
from tests.upstreams.payments import PaymentsServer

_numbers = itertools.count(1)
Got = dict[str, Any]

# The shipped policy lets everything through whose type and environment are the demo's; the read shows the order.
LET_THROUGH: dict[str, Any] = {
    "action": {"type": "demo.refund", "environment": "demo", "risk_tier": "low"},
    "reads": {"verify": {"tool": "get_order", "arguments": {"order_id": "/args/order_id"}}},
    "verification": {"authoritative_read_tool": "get_order"},
}


def let_through(**more: Mapping[str, Any]) -> dict[str, Any]:
    """The demo's contract: a refund that nobody needs to approve, proved by the order's existence."""
    contract = refund_contract({**LET_THROUGH, **more})
    contract["verification"] |= {"expected": {"exists": True}, "prohibited": {}, "tolerated": {}}
    return contract


@dataclass
class Crowd:
    """One daemon, one upstream, many callers."""

    site: ForkedSite
    payments: PaymentsServer

    @classmethod
    @contextlib.contextmanager
    def make(cls, contracts: Mapping[str, Any], **daemon: Any) -> Iterator[Crowd]:
        """A running daemon."""
        with ForkedSite.forking() as site, PaymentsServer.start(site.folder) as payments:
            site.configure(payments.url, contracts=contracts, daemon=daemon)
            site.pin()
            site.start()
            yield cls(site, payments)

    def order(self) -> str:
        """A new one."""
        return f"C-{next(_numbers)}"

    def effects(self, order: str) -> list[dict[str, Any]]:
        """What really happened to an order."""
        return [effect for effect in self.payments.effects() if effect["order_id"] == order]

    def call(self, *crowds: Sequence[Got]) -> list[Got]:
        """Each crowd in a process of its own, all calls at one moment."""
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(self._process(crowd)) for crowd in crowds]
            for process in processes:
                _say(process, "")  # go
            return [json.loads(line) for process in processes for line in _lines(process)]

    @contextlib.contextmanager
    def calling(self, calls: Sequence[Got]) -> Iterator[subprocess.Popen[str]]:
        """A crowd that calls while the block runs."""
        with self._process(calls) as process:
            _say(process, "")
            yield process

    @contextlib.contextmanager
    def _process(self, calls: Sequence[Got]) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(Path(__file__).with_name("callers.py")), str(self.site.socket("agent"))]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True) as process:
            try:
                for call in calls:
                    _say(process, json.dumps(call))
                _say(process, "")
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.kill()

    def records(self) -> list[Record]:
        """The whole ledger."""
        found: list[Record] = []
        at = 0
        with self.site.client("auditor") as auditor:
            while True:
                page = auditor.read_ledger(at, 1000)
                found += [read(leaf) for _, leaf in page.leaves if b'"kblockd.record/1"' in leaf]
                if page.next_index is None:
                    return found
                at = page.next_index

    def runs_of(self, order: str) -> list[tuple[str, str]]:
        """(claimed or sealed, execution) of an order, in the ledger's order."""
        ours: set[str] = set()
        found = []
        for record in self.records():
            if record.type == RecordType.PROPOSED and record.body["target"]["id"] == order:
                ours.add(record.execution)
            elif record.execution in ours and record.type in (RecordType.CLAIMED, RecordType.SEALED):
                found.append((str(record.type), record.execution))
        return found

    def check_one_at_a_time(self, order: str) -> int:
        """Never two in flight: each claim is followed by its own seal. The number of runs."""
        runs = self.runs_of(order)
        assert len(runs) % 2 == 0, runs
        for claimed, sealed in zip(runs[::2], runs[1::2], strict=True):
            assert (claimed[0], sealed[0]) == ("execution.claimed", "result.sealed"), runs
            assert claimed[1] == sealed[1], runs
        return len(runs) // 2


def ask(order: str, key: str | None, amount: str = "100.00", **more: Any) -> Got:
    """A line for a caller; ``more`` may name operation, environment and fields."""
    base = {"operation": "demo.refund", "environment": "demo", "order": order, "amount": amount, "key": key}
    return {**base, **more}


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _lines(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readlines()
