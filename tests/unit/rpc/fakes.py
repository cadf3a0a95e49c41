"""A daemon behind a real grpc.aio server: the facades' signatures with answers that a test chooses."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kblockd.admission import Admission
from kblockd.domain.envelope import Envelope
from kblockd.domain.errors import FailedPrecondition, KblockError, NotFound, Reason
from kblockd.domain.outcome import ApprovalView, CallOutcome, CallStatus, Finding, Revocation, StageEvent
from kblockd.domain.principal import Principal, View
from kblockd.domain.settings import Shares
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.ledger import Entry, SignedHead
from kblockd.ledger.tlog_proof import TlogProof
from kblockd.policy.engine import Decision, PolicyFailure, PolicyStatus
from kblockd.policy.explain import Explanation
from kblockd.policy.fired import Rule
from kblockd.rpc.identity import UnixListener
from kblockd.rpc.server import RpcServer
from kblockd.telemetry.exporter import NullExport
from kblockd.telemetry.recorder import Trace
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.tracing import Tracing
from tests import records
from tests.elsewhere import elsewhere

AT = dt.datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
AGENT = Principal("local:agent", "agent", "acme", "team:support-bot")
LEAD = Principal("local:lead", "person", "acme", "person:lead", ("finance",))
OPERATOR = Principal("local:operator", "person", "*", "person:operator", ("operator",))
HEX = "ab" * 32

COMPLETED = CallOutcome(
    execution_id="exec_1",
    status=CallStatus.COMPLETED,
    state="succeeded",
    result_class="completed_verified",
    detail="done",
    executed=True,
    consumed=True,
    replayed=True,
    action_sha256=HEX,
    approval_id="appr_1",
    output_json=b'{"refund":"r-1"}',
    result_dsse=b'{"r":1}',
    receipt_dsse=b'{"p":1}',
    receipt_proof="c2sp.org/tlog-proof@v1\n",
)
PENDING = CallOutcome(
    "exec_1", CallStatus.APPROVAL_PENDING, "pending_approval", action_sha256=HEX, approval_id="appr_1"
)
EVENTS = [
    StageEvent(3, 3, "decide", AT, 1500, "execution.proposed", "", ((0, 12), (1, 340), (2, 25))),
    StageEvent(9, 9, "consume", AT + dt.timedelta(seconds=2), 4_000, "execution.claimed", ""),
    StageEvent(12, 12, "classify", AT + dt.timedelta(seconds=3), 1_200_000, "attempt.outcome", "UPSTREAM_TIMEOUT"),
]
APPROVAL = ApprovalView(
    approval_id="appr_1",
    execution_id="exec_1",
    action_sha256=HEX,
    summary="Refund 10.00 EUR for order A-1",
    arguments_json=b'{"amount":"10.00"}',
    requester="local:agent",
    not_before=AT,
    not_after=AT + dt.timedelta(minutes=10),
    agent="local:agent",
    operation="payment.refund.create",
    environment="production",
    risk_tier="high",
    upstream="payments",
    tool="refund",
    intent_json=b'{"order":"A-1"}',
    warnings=("irreversible",),
    presented_sha256="cd" * 32,
    state="pending",
    tenant="acme",
    count=2,
    roles=("finance",),
    floor_roles=("legal",),
    raised="policy said allow; approval_floor.high raised it to 2 owners",
    target_type="order",
    target_id="A-1",
    target_version="1",
    target_version_note="never beside a version, but every field travels",
)


class FakeClock:
    """Stands still."""

    def now(self) -> dt.datetime:
        return AT

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class FakeIds:
    """Counts."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):032x}"

    def salt(self) -> str:
        return f"{next(self._numbers):032x}"


class FakeEngine:
    """Allows everything and shows everything, until ``result`` or ``failure`` is set."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {"allow": True, "tenants": ["*"], "agents": ["*"], "reasons": []}
        self.failure: PolicyFailure | None = None
        self.revision = "r1"
        self.ready = True
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def status(self) -> PolicyStatus:
        return PolicyStatus("fake", self.revision, self.ready)

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        self.asked.append((entrypoint, document))
        if self.failure:
            raise self.failure
        return Decision(entrypoint, self.result, "fake", self.revision, "d1", HEX, 1)

    async def close(self) -> None:
        pass


@dataclass
class FakeExecutions:
    """``answers`` is what Execute gives, one a call, the last one for ever; an exception is raised."""

    answers: list[CallOutcome | BaseException] = field(default_factory=lambda: [COMPLETED])
    events: list[StageEvent] = field(default_factory=lambda: list(EVENTS))
    stored: CallOutcome = COMPLETED
    calls: list[tuple[Principal, Envelope, float | None, Trace]] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    authorizations: list[tuple[str, str, Mapping[str, Any], Decision]] = field(default_factory=list)
    refusals: list[tuple[str, str, KblockError]] = field(default_factory=list)
    hold: asyncio.Event | None = None
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    watching: int = 0
    endless: bool = False
    flood: bool = False

    async def execute(self, principal: Principal, envelope: Envelope, wait: float | None, trace: Trace) -> CallOutcome:
        self.calls.append((principal, envelope, wait, trace))
        self.waiting.set()
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def get(
        self, view: View, principal: Principal, *, execution_id: str = "", caller_key: str = ""
    ) -> tuple[CallOutcome, list[StageEvent]]:
        self.asked.append(("get", view, principal, execution_id, caller_key))
        if execution_id == "exec_none":
            raise NotFound(Reason.NOT_FOUND, "no such execution")
        return self.stored, self.events

    async def shows(self, view: View, execution_id: str) -> bool:
        self.asked.append(("shows", view, execution_id))
        return execution_id != "exec_none"

    async def list(
        self, view: View, *, page_size: int, page_token: str, states: Sequence[str]
    ) -> tuple[list[CallOutcome], str]:
        self.asked.append(("list", view, page_size, page_token, tuple(states)))
        return [self.stored, PENDING], "next" if not page_token else ""

    async def watch(self, view: View, execution_id: str, after_index: int) -> AsyncIterator[StageEvent]:
        self.asked.append(("watch", view, execution_id, after_index))
        self.watching += 1
        try:
            for event in self.events:
                if event.ledger_index > after_index:
                    yield event
            while self.flood:
                yield self.events[0]
                await asyncio.sleep(0)
            if self.endless:
                self.waiting.set()
                await asyncio.Event().wait()
        finally:
            self.watching -= 1

    async def resolve(
        self, principal: Principal, view: View, execution_id: str, finding: Finding, reason: str
    ) -> CallOutcome:
        self.asked.append(("resolve", principal, execution_id, finding, reason))
        return self.stored

    async def authorized(
        self, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
    ) -> bool:
        self.authorizations.append((principal.id, method, document, decision))
        return True

    async def refused(self, principal: Principal, method: str, error: KblockError) -> None:
        self.refusals.append((principal.id, method, error))


@dataclass
class FakeApprovals:
    """One approval."""

    shown: ApprovalView = APPROVAL
    decided: list[tuple[Any, ...]] = field(default_factory=list)
    revoked: list[tuple[Any, ...]] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def get(self, view: View, approval_id: str) -> ApprovalView:
        self.asked.append(("get", view, approval_id))
        if approval_id != self.shown.approval_id:
            raise NotFound(Reason.NOT_FOUND, "no such approval")
        return self.shown

    async def list(
        self, view: View, *, page_size: int, page_token: str, states: Sequence[str]
    ) -> tuple[list[ApprovalView], str]:
        self.asked.append(("list", view, page_size, page_token, tuple(states)))
        return [self.shown], ""

    async def decide(
        self,
        principal: Principal,
        view: View,
        approval_id: str,
        *,
        action_sha256: str,
        presented_sha256: str,
        verdict: str,
        reason: str,
    ) -> tuple[ApprovalView, bytes]:
        self.decided.append((principal, approval_id, action_sha256, presented_sha256, verdict, reason))
        if presented_sha256 != self.shown.presented_sha256:
            raise FailedPrecondition(
                Reason.SHOWN_DIFFERS, "another text was shown", next_step="read the approval again"
            )
        state = "approved" if verdict == "approve" else "denied"
        return replace(self.shown, state=state), b'{"payload":"approval"}'

    async def revoke(self, principal: Principal, view: View, approval_id: str, *, reason: str) -> Revocation:
        self.revoked.append((principal, approval_id, reason))
        if len(self.revoked) > 1:
            raise FailedPrecondition(Reason.APPROVAL_NOT_VALID, "the approval is used", executed=True, consumed=True)
        return Revocation(approval_id, self.shown.execution_id, 7)


class FakeLedger:
    """Five records; the proofs have their form, not their truth."""

    def __init__(self) -> None:
        kinds = [
            records.Record(records.RecordType.DAEMON_STARTED, "2026-11-29T12:00:00.000000Z"),
            records.Record(records.RecordType.PROPOSED, "2026-11-29T12:00:01.000000Z", "acme", "exec_1", 0, 3),
            records.Record(records.RecordType.PROPOSED, "2026-11-29T12:00:02.000000Z", "other", "exec_none", 0, 3),
            records.Record(records.RecordType.CLAIMED, "2026-11-29T12:00:03.000000Z", "acme", "exec_1", 0, 9),
            records.Record(records.RecordType.SEALED, "2026-11-29T12:00:04.000000Z", "acme", "exec_1", 1, 16),
        ]
        self.entries = [Entry(index, record.leaf(), b"") for index, record in enumerate(kinds)]
        self.prefixes: tuple[Any, ...] = ()

    def size(self) -> int:
        return len(self.entries)

    async def checkpoint(self) -> SignedHead:
        return SignedHead(TreeHead("kblockd.example/test/1", self.size(), b"\0" * 32), "checkpoint 5\n")

    async def proof(self, index: int, under: SignedHead | None = None) -> TlogProof:
        return TlogProof(index, (b"\1" * 32,), "kblockd.example/test/1\n5\nAAAA\n\n— sig\n")

    async def consistency(self, old: int, new: int) -> list[bytes]:
        return [b"\2" * 32] * (new - old)

    async def read(self, first: int, limit: int = 1000) -> list[Entry]:
        return self.entries[first : first + limit]

    async def read_rows(self, *prefixes: tuple[str | int, ...]) -> list[Entry]:
        self.prefixes = prefixes
        return [e for e in self.entries if records.read(e.leaf).execution == prefixes[0][1]]


class FakePolicies:
    """Answers as the fake engine does; explains with one rule."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine

    def status(self) -> PolicyStatus:
        return self.engine.status()

    async def activation(self) -> tuple[int, Any] | None:
        at = "2026-11-29T12:00:00.000000Z"
        return 4, SimpleNamespace(
            revision=self.engine.revision, at=at, tests=3, bundle_sha256=HEX, bundle_revision="", signer="release"
        )

    async def evaluate(self, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        return await self.engine.evaluate(entrypoint, document)

    async def explain(self, entrypoint: str, document: Mapping[str, Any]) -> Explanation:
        rules = (Rule("authz.rego", 7, 1, "kblock.authz.result", "default"),)
        try:
            decision = await self.engine.evaluate(entrypoint, document)
        except PolicyFailure as failure:
            return Explanation(entrypoint, self.engine.revision, None, failure, None, rules)
        return Explanation(entrypoint, self.engine.revision, decision, None, decision.result, rules)


@dataclass
class Daemon:
    """The fakes, the server in front of them, and one target a principal."""

    folder: Path
    executions: FakeExecutions = field(default_factory=FakeExecutions)
    approvals: FakeApprovals = field(default_factory=FakeApprovals)
    ledger: FakeLedger = field(default_factory=FakeLedger)
    engine: FakeEngine = field(default_factory=FakeEngine)
    shares: Shares = Shares(calls=2048, calls_per_second=1_000_000, streams=2048)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        ids = FakeIds()
        listeners = [
            UnixListener(self.folder / f"{who.id.removeprefix('local:')}.sock", who) for who in (AGENT, LEAD, OPERATOR)
        ]
        tracing = Tracing(Sampling(0), NullExport(), ids)
        self.server = RpcServer(
            listeners, self.executions, self.approvals, self.ledger, self.engine, FakeClock(), ids, tracing,
            policies=FakePolicies(self.engine), admission=Admission(self.shares, FakeClock()),
        )  # fmt: skip

    def target(self, name: str = "agent") -> str:
        return f"unix:{self.folder}/{name}.sock"


@asynccontextmanager
async def running(folder: Path, **parts: Any) -> AsyncIterator[Daemon]:
    """A daemon that serves while the block runs."""
    daemon = Daemon(folder, **parts)
    await daemon.server.start()
    await daemon.server.set_serving(True)
    try:
        yield daemon
    finally:
        await daemon.server.stop(0)


def in_thread(folder: Path, **parts: Any) -> AbstractContextManager[Daemon]:
    """The same on a loop of its own in a thread, for blocking clients."""
    return elsewhere(running(folder, **parts))
