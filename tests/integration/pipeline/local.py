"""A real daemon in a thread of the test process: everything of ``Site`` but the process around it.

Real RocksDB, policy child, adapters, sockets; only the start is quick. Tests that need a process to kill use ``Site``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from click.testing import CliRunner

from kblockd.cli.kblockd import kblockd
from kblockd.client import Client
from kblockd.client.answers import Answer, ApprovalPending
from kblockd.client.calls import Call
from kblockd.daemon import Daemon, load_checked, open_daemon
from kblockd.domain.clock import parse_rfc3339
from kblockd.execution import refusals
from tests.harness import Site, approve, refund_contract
from tests.upstreams.payments import PaymentsServer

# The watchdog would end the test process with the daemon's loop, and approvals that nobody gives must not expire under
# the tests that come later.
LONG_LEASE = {"lease_ttl_seconds": 30, "approval_ttl_seconds": 600}
PEOPLE = [
    ("chief", "person:chief", ["finance"]),
    ("deputy", "person:lead", ["finance"]),  # another account of the lead
    ("colleague", "team:support-bot", ["finance"]),  # the requester's own team
    ("counsel", "person:counsel", ["legal"]),  # approves, but nothing that these tests ask for
    ("insider", "team:support-bot", ["operator"]),
]
PATIENT_BREAKER = {"breaker": {"failures": 1000, "open_seconds": 1}}


class LocalSite(Site):
    """``start`` opens the daemon of ``kblockd.daemon`` on a loop of its own; ``stop`` and ``kill`` close it orderly."""

    daemon: Daemon | None = None
    _thread: threading.Thread | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _end: asyncio.Event | None = None
    _failure: BaseException | None = None
    _reader: Client | None = None

    def command(self, *arguments: str, check: bool = True) -> str:
        done = CliRunner().invoke(kblockd, list(arguments))
        if check and done.exit_code != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {done.exit_code}\n{done.output}") from done.exception
        return done.stdout

    def start(self, failpoint: str = "", *, wait: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Raises what refused the start."""
        assert not failpoint
        assert not environment
        opened = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(opened)), name="kblockd")
        self._thread.start()
        opened.wait(60)
        if self._failure is not None:
            self._thread.join(30)
            self._loop = self._end = self._thread = None
            raise self._failure
        if wait:
            self.wait_healthy()

    @property
    def reader(self) -> Client:
        """One connection as the operator for all that tests read of the ledger, until the next stop."""
        if self._reader is None:
            self._reader = self.client("operator")
        return self._reader

    def stop(self, seconds: float = 60.0) -> int:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._loop is not None and self._end is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(seconds)
            assert not self._thread.is_alive()
        self._loop = self._end = self._thread = self.daemon = None
        return 0

    def kill(self) -> None:
        self.stop()

    def restart(self) -> None:
        """With whatever the configuration says now."""
        self.stop()
        self.start()

    def wait_healthy(self) -> None:
        """Until health says SERVING."""
        for _ in range(600):
            if self._healthy():
                return
            threading.Event().wait(0.05)
        raise RuntimeError("the daemon does not serve")

    def run(self, work: Any) -> Any:
        """A coroutine on the daemon's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def rewrite(self, change: Callable[[dict[str, Any]], None], name: str = "kblockd.yaml") -> None:
        """Changes one file of the configuration in place; it counts from the next start on."""
        file = self.config.parent / name
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))

    def secret(self, name: str, value: str) -> None:
        """A file that only the daemon's user may read, in the site's folder."""
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(value + "\n")

    def edit_policy(self, name: str, old: str, new: str) -> None:
        """Replaces a text that must stand in the module exactly once, as an editor would: by a rename."""
        file = self.config.parent / "policy" / name
        text = file.read_text()
        assert text.count(old) == 1, (name, old)
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(text.replace(old, new))
        fresh.replace(file)

    def _daemon(self) -> dict[str, Any]:
        """With more people: somebody of the requester's own team, a second approver, another operator."""
        base = super()._daemon()
        for name, owner, roles in PEOPLE:
            principal = f"local:{name}"
            tenant = "*" if roles == ["operator"] else "acme"
            base["principals"].append(
                {"id": principal, "kind": "person", "tenant": tenant, "owner": owner, "roles": roles}
            )
            socket = str(self.socket(name))
            base["listeners"].append({"unix": socket, "mode": "0600", "principal": principal})
        base["limits"]["pending_approvals_per_agent"] = 1000
        return base

    async def _serve(self, opened: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with open_daemon(load_checked(self.config)) as self.daemon:
                opened.set()
                await self._end.wait()
        except BaseException as failure:
            self._failure = failure
        finally:
            opened.set()


def order() -> str:
    """An order that no other test has."""
    return f"o-{uuid.uuid4().hex[:10]}"


def variants(changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The refund contract, one an environment; ``lookup`` replaces the whole list."""
    found = {}
    for environment, change in changes.items():
        document = refund_contract({**change, "action": {"environment": environment}})
        found[f"refund.{environment}"] = document
    return found


def refund_in(
    environment: str,
    order_id: str,
    key: str | None = None,
    *,
    operation: str = "payment.refund.create",
    amount: str = "100.00",
    **fields: Any,
) -> Call:
    """The demo's call in another environment, or as another operation."""
    arguments = {"order_id": order_id, "amount": amount, "currency": "EUR"}
    return Call.of(operation, environment, target=order_id, arguments=arguments, key=key, keyless=key is None, **fields)


def ask(site: Site, call: Call) -> ApprovalPending:
    """The first call: it waits for an approval."""
    with site.client() as agent:
        pending = agent.execute(call)
    assert isinstance(pending, ApprovalPending), pending
    return pending


def run_approved(site: Site, call: Call) -> Answer:
    """Asked, approved, and called once more."""
    approve(site, ask(site, call).approval_id)
    with site.client() as agent:
        return agent.execute(call)


def in_background(site: Site, call: Call) -> threading.Thread:
    """The approved call, on its way; what it answers is asked for afterwards."""

    def execute() -> None:
        with site.client() as agent:
            agent.execute(call)

    thread = threading.Thread(target=execute)
    thread.start()
    return thread


def records(site: LocalSite, execution_id: str) -> list[dict[str, Any]]:
    """Every record of an execution but the receipt, in order, read over the wire."""
    leaves = site.reader.read_ledger(execution_id=execution_id, limit=200).leaves
    found = [json.loads(leaf) for _, leaf in leaves]
    return [record for record in found if record.get("v") == "kblockd.record/1"]


def types(site: LocalSite, execution_id: str) -> list[str]:
    """Their types."""
    return [record["type"] for record in records(site, execution_id)]


def body(site: LocalSite, execution_id: str, type_: str) -> dict[str, Any]:
    """The body of the last record of a type."""
    found: dict[str, Any] = [r for r in records(site, execution_id) if r["type"] == type_][-1]["body"]
    return found


def statement(dsse: bytes) -> dict[str, Any]:
    """The statement in a DSSE envelope, unverified."""
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(dsse)["payload"]))
    return found


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for a condition; raises AssertionError when it never holds."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, "the condition never held"
        time.sleep(0.05)


def seconds_between(earlier: str, later: str) -> float:
    """Of two RFC 3339 times."""
    return (parse_rfc3339(later) - parse_rfc3339(earlier)).total_seconds()


def since(site: LocalSite, index: int) -> list[dict[str, Any]]:
    """Every record from an index on, whoever it belongs to; receipts are left out."""
    found: list[dict[str, Any]] = []
    after: int | None = index
    while after is not None:
        page = site.reader.read_ledger(from_index=after, limit=500)
        found += [json.loads(leaf) for _, leaf in page.leaves]
        after = page.next_index
    return [record for record in found if record.get("v") == "kblockd.record/1"]


def news(site: LocalSite, index: int) -> list[dict[str, Any]]:
    """As ``since``, without what depends on the tests before: answers to calls that they abandoned, approvals that they
    left to end, and what stage 0 decides the first time that somebody calls a method."""
    return [r for r in since(site, index) if not _depends_on_others(r)]


def _depends_on_others(record: dict[str, Any]) -> bool:
    if record["type"] == "attempt.outcome":
        return bool(record["body"]["late"])
    return record["type"] in ("authz.decided", "execution.expired")


def size(site: LocalSite) -> int:
    """Records in the ledger, once what rides along with an earlier answer has been written; and the minute of whatever
    was refused before has ended, so that the next refusal is the first of its kind."""
    assert site.daemon is not None
    site.run(refusals.write_counts(site.daemon.parts))
    before, now = -1, site.daemon.parts.store.size()
    while now != before:
        time.sleep(0.1)
        before, now = now, site.daemon.parts.store.size()
    return now


def effects(pay: PaymentsServer, order_id: str) -> list[dict[str, Any]]:
    """What really happened to an order."""
    return [effect for effect in pay.effects() if effect["order_id"] == order_id]


def raw_files(site: LocalSite) -> Iterator[tuple[str, bytes]]:
    """Every file of a stopped daemon's data directory but its keys, and its log."""
    for file in [*site.data.rglob("*"), site.log]:
        if file.is_file() and "keys" not in file.parts:
            yield str(file), file.read_bytes()
