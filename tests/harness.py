"""A real daemon process over a real data directory, for integration, crash and demo runs.

``Site`` writes a configuration made from the shipped files (with short clocks), makes keys and pins, and starts
``kblockd serve`` as a child process that can be killed and started again.
"""

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

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from ruamel.yaml import YAML

from kblockd.client import Call, CallError, Client

ROOT = Path(__file__).resolve().parent.parent
SHORT_CLOCKS = {
    "lease_ttl_seconds": 6,
    "heartbeat_seconds": 1,
    "close_after_seconds": 60,
    "sweep_seconds": 1,
    "reconcile_seconds": 3,
    "skew_seconds": 1,
    "approval_ttl_seconds": 60,
    "client_wait_seconds": 30,
}
ROOMY = {
    "executions": 10_000,
    "calls": 2048,
    "calls_per_second": 1_000_000,
    "request_bytes": 1 << 30,
    "policy_questions": 1024,
    "upstream_calls": 10_000,
    "streams": 2048,
    "records_per_minute": 100_000_000,
}
"""No share: a test is one agent with the whole daemon for itself, unless it is about shares."""


def shipped(name: str) -> Any:
    """A file of ``config/`` as plain values."""
    return YAML(typ="safe").load((ROOT / "config" / name).read_text())


def merged(base: Any, changes: Mapping[str, Any]) -> Any:
    """``base`` with ``changes`` put over it, object by object."""
    result = dict(base)
    for key, value in changes.items():
        result[key] = merged(result.get(key) or {}, value) if isinstance(value, Mapping) else value
    return result


SHORT_CONTRACT = {
    "execution": {"request_timeout_seconds": 3, "absolute_deadline_seconds": 20, "maximum_concurrent_actions": 64},
    "verification": {"maximum_duration_seconds": 3, "poll_interval_seconds": 1},
}


# The demo's provider says what is wrong in a text of its result, and does nothing then.
EFFECT_FREE = {"errors_are_effect_free": True, "errors": {"in": "tool_result", "has": "/content/0/text"}}


def refund_contract(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The shipped contract with bounds that suit a test."""
    contract = merged(shipped("actions/payment.refund.create.yaml"), SHORT_CONTRACT)
    contract["lookup"] = [merged(contract["lookup"][0], {"absent_final_after_seconds": 1})]
    result: dict[str, Any] = merged(contract, changes or {})
    return result


class Site:
    """Everything of one daemon under one short path (socket paths are at most 107 bytes)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "etc" / "kblockd.yaml"
        self.data = folder / "data"
        self.root_key = folder / "root.pem"
        self.log = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextlib.contextmanager
    def make(cls) -> Iterator[Site]:
        """In a folder of its own that is gone afterwards, like the daemon."""
        folder = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))
        site = cls(folder)
        try:
            yield site
        finally:
            site.kill()
            shutil.rmtree(folder, ignore_errors=True)

    def configure(
        self,
        upstream_url: str,
        *,
        contract: Mapping[str, Any] | None = None,
        daemon: Mapping[str, Any] | None = None,
        upstream: Mapping[str, Any] | None = None,
        contracts: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes configuration, policies and keys. ``contracts`` (name to document) replaces the refund contract."""
        etc = self.config.parent
        for name in ("actions", "upstreams"):
            (etc / name).mkdir(parents=True, exist_ok=True)
        for path in (self.folder, self.data, self.folder / "run"):
            path.mkdir(mode=0o700, exist_ok=True)
        if not (etc / "policy").exists():
            shutil.copytree(ROOT / "config" / "policy", etc / "policy")
            for tests in (etc / "policy" / "actions").glob("*_test.rego"):
                tests.unlink()  # of the worked examples: half a second at each start
        given = contracts or {"payment.refund.create": refund_contract(contract)}
        for name, document in given.items():
            (etc / "actions" / f"{name}.yaml").write_text(json.dumps(document))
        base = merged(shipped("upstreams/payments.yaml"), {"url": upstream_url, "tools": None})
        base["tools"] = {}
        if upstream and "settings" in upstream:
            base["settings"] = {}  # another adapter's settings are another model
        (etc / "upstreams" / "payments.yaml").write_text(json.dumps(merged(base, upstream or {})))
        self.config.write_text(json.dumps(merged(self._daemon(), daemon or {})))
        if not (self.data / "keys").exists():
            self.command("keys", "init", "--config", str(self.config), "--root", str(self.root_key))

    def pin(self, name: str = "payments") -> None:
        """Reviews (here: believes) what the upstream says of its tools, and writes the pins."""
        printed = self.command("upstream", "pin", name, "--config", str(self.config))
        file = self.config.parent / "upstreams" / f"{name}.yaml"
        document = json.loads(file.read_text())
        document["tools"] = YAML(typ="safe").load(printed)["tools"]
        file.write_text(json.dumps(document))

    def command(self, *arguments: str, check: bool = True) -> str:
        """``kblockd …``; its standard output. Raises RuntimeError with what it said."""
        command = [sys.executable, "-m", "kblockd", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, failpoint: str = "", *, wait: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Starts the daemon and, with ``wait``, waits until it serves; raises RuntimeError with its log."""
        env = {**os.environ, **(environment or {})}
        env.pop("KBLOCKD_FAILPOINT", None)
        if failpoint:
            env["KBLOCKD_FAILPOINT"] = failpoint
        command = [sys.executable, "-m", "kblockd", "serve", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
        if wait:
            self.wait_serving()

    def wait_serving(self, seconds: float = 60.0) -> None:
        """Until grpc.health.v1 says SERVING."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended: {self.said()}")
            if self._healthy():
                return
            time.sleep(0.05)
        raise RuntimeError(f"the daemon does not serve: {self.said()}")

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        self.process = None
        return code

    def wait_dead(self, seconds: float = 60.0) -> int:
        """Until it has ended by itself; its exit code (negative: the signal)."""
        assert self.process is not None
        code = self.process.wait(seconds)
        self.process = None
        return code

    def said(self) -> str:
        """The end of the daemon's log."""
        return self.log.read_text()[-4000:] if self.log.exists() else ""

    def socket(self, name: str) -> Path:
        """agent, lead, operator or auditor."""
        return self.folder / "run" / f"{name}.sock"

    def client(self, name: str = "agent") -> Client:
        """A blocking client as that principal."""
        return Client(f"unix:{self.socket(name)}")

    def _healthy(self) -> bool:
        path = self.socket("operator")
        if not path.exists():
            return False
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _daemon(self) -> dict[str, Any]:
        base = shipped("kblockd.yaml")
        base["principals"] = [
            *base["principals"],
            {"id": "local:other", "kind": "agent", "tenant": "acme", "owner": "team:other", "roles": []},
            {"id": "local:auditor", "kind": "person", "tenant": "acme", "owner": "person:aud", "roles": ["auditor"]},
        ]
        run = self.folder / "run"
        names = {
            "agent": "local:agent",
            "other": "local:other",
            "lead": "local:lead",
            "operator": "local:operator",
            "auditor": "local:auditor",
        }
        listeners = [
            {"unix": str(run / f"{name}.sock"), "mode": "0600", "principal": principal}
            for name, principal in names.items()
        ]
        return dict(
            merged(
                base,
                {
                    "data_dir": str(self.data),
                    "listeners": listeners,
                    "clocks": SHORT_CLOCKS,
                    "limits": {"free_space_mib": 16, "per_principal": ROOMY},
                    # A test brings a policy of three rules without tests of its own.
                    "policy": {"evaluate_timeout_seconds": 5.0, "require_tests": False},
                    "development": {"failpoints": True},
                },
            )
        )


def refund(order: str = "A-1", amount: str = "100.00", key: str | None = None, **fields: Any) -> Call:
    """The demo's call; without a key it is a keyless one."""
    return Call.of(
        "payment.refund.create",
        "production",
        target=order,
        arguments={"order_id": order, "amount": amount, "currency": "EUR"},
        key=key,
        keyless=key is None,
        **fields,
    )


def approve(site: Site, approval_id: str, verdict: str = "approve", who: str = "lead") -> None:
    """The lead reads what is asked and decides with both digests."""
    with site.client(who) as lead:
        shown = lead.approval(approval_id)
        lead.decide(
            approval_id,
            action_sha256=shown.action_sha256,
            presented_sha256=shown.presented_sha256,
            verdict=verdict,
            reason="as agreed",
        )


def revoke(site: Site, approval_id: str, who: str = "lead", reason: str = "not any more") -> CallError | None:
    """Takes an approval back; why it was refused, or None."""
    with site.client(who) as client:
        try:
            client.revoke(approval_id, reason)
        except CallError as refused:
            return refused
    return None
