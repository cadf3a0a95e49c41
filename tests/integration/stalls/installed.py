"""The plugin as an installed distribution, and a daemon that has loaded it beside the real ones."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kblockd.client import Call
from tests.crash.daemon.forked import ForkedSite
from tests.harness import merged, refund_contract
from tests.integration.concurrency.crowd import let_through
from tests.upstreams.payments import PaymentsServer

_numbers = itertools.count(1)
BOUNDS: Any = {"kblockd.daemon.GRACE_SECONDS": 1.0, "kblockd.ending.LEFT_SECONDS": 1.0}
SECONDS = {"execution": {"request_timeout_seconds": 2, "absolute_deadline_seconds": 4}}
UNPROVABLE = {
    "reads": {"verify": None},
    "lookup": [],
    "verification": {"required": False, "authoritative_read_tool": None},
}


def install(folder: Path) -> Path:
    """A distribution whose one entry point is the plugin; the folder belongs on ``sys.path``."""
    info = folder / "stalling-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stalling\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[kblockd.adapters]\nstalling = tests.integration.stalls.plugin:PLUGIN\n")
    return folder


@dataclass
class Stalled:
    """The daemon, its two upstreams, and what really happened."""

    site: ForkedSite
    payments: PaymentsServer
    lines: Path

    def start(self, closing: str = "well") -> None:
        """With an adapter that closes so."""
        file = self.site.config.parent / "upstreams" / "stalling.yaml"
        document = json.loads(file.read_text())
        document["settings"]["closing"] = closing
        file.write_text(json.dumps(document))
        self.site.start(constants=BOUNDS)

    def stalled(self, behaviour: str) -> Call:
        """A call of the adapter that behaves so."""
        return _call("demo.stalled", f"{behaviour}-{next(_numbers)}")

    def other(self) -> Call:
        """A call of the payments server over MCP."""
        return _call("demo.refund", f"other-{next(_numbers)}")

    def effects(self, call: Call) -> int:
        """How often it happened."""
        order = call.envelope.target.id
        lines = self.lines.read_text().splitlines() if self.lines.exists() else []
        return lines.count(order) + sum(effect["order_id"] == order for effect in self.payments.effects())


def _call(operation: str, order: str) -> Call:
    arguments = {"order_id": order, "amount": "100.00", "currency": "EUR"}
    return Call.of(operation, "demo", target=order, arguments=arguments, key=f"key-{order}")


@contextlib.contextmanager
def stalling(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Stalled]:
    """Configured, pinned, not started. What the plugin answers cannot be looked up: what it does not say is unknown."""
    folder = install(folder)
    patch.syspath_prepend(folder)
    with ForkedSite.forking(folder) as site, PaymentsServer.start(site.folder) as payments:
        lines = site.folder / "effects"
        _configure(site, payments, lines)
        yield Stalled(site, payments, lines)


def _configure(site: ForkedSite, payments: PaymentsServer, lines: Path) -> None:
    stalled = refund_contract(
        merged(
            {
                "action": {"type": "demo.stalled", "environment": "demo", "risk_tier": "low"},
                "tool": {"upstream": "stalling"},
            },
            {**SECONDS, **UNPROVABLE},
        )
    )
    stalled["tool"]["effect_key"] = {"in": "none", "name": ""}
    stalled["idempotency_scope"] = "none"
    upstream = {
        "adapter": "stalling",
        "url": "http://127.0.0.1:9",
        "allow_addresses": ["127.0.0.0/8"],
        "tls": {"ca_file": None, "spki_sha256": []},
        "tools": {},
        "credentials": {"write": "none", "read": "none"},
        "settings": {"effects": str(lines)},
        "maximum_concurrent_calls": 4,
        "breaker": {"failures": 1000, "open_seconds": 1},
    }
    folder = site.config.parent / "upstreams"
    folder.mkdir(parents=True)
    (folder / "stalling.yaml").write_text(json.dumps(upstream))
    site.configure(
        payments.url,
        contracts={"demo.stalled": stalled, "demo.refund": let_through()},
        daemon={"adapters": ["mcp", "stalling"], "clocks": {"lease_ttl_seconds": 3}},
    )
    site.pin("stalling")
    site.pin()
