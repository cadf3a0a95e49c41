"""What a caller, an approver and an auditor hold in their hands across a death of the daemon, and what must be true."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kblockd.client import Answer, ApprovalPending, Call, Completed, InProgress, Unavailable, UpstreamError
from kblockd.domain.outcome import ApprovalView
from kblockd.evidence import verify_offline
from kblockd.ledger import checkpoint
from kblockd.ledger.merkle import verify_consistency
from tests import harness
from tests.crash.daemon.forked import ForkedSite
from tests.harness import approve, merged, refund_contract
from tests.records import Record, RecordType, read
from tests.upstreams.payments import PaymentsServer

_numbers = itertools.count(1)
ATTEMPTS = {"execution": {"maximum_attempts": 3}}
EFFECT_FREE = {"tool": harness.EFFECT_FREE}


def variant(environment: str, *changes: dict[str, Any]) -> dict[str, Any]:
    """The refund contract for another environment: one daemon can then hold several."""
    contract = refund_contract({"action": {"environment": environment}})
    for change in changes:
        contract = refund_contract(merge(contract, change))
    return contract


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """``change`` over ``base``."""
    found: dict[str, Any] = merged(base, change)
    return found


def call(order: str, key: str | None, environment: str = "production", **more: Any) -> Call:
    """A refund of the whole order."""
    return Call.of(
        "payment.refund.create",
        environment,
        target=order,
        arguments={"order_id": order, "amount": "100.00", "currency": "EUR"},
        key=key,
        keyless=key is None,
        **more,
    )


class Gone(Exception):
    """The daemon is."""


@dataclass
class World:
    """A site whose data directory lives through all cases of a module, and its upstream."""

    site: ForkedSite
    payments: PaymentsServer
    checkpoints: list[str] = field(default_factory=list)

    def effects(self, order: str) -> list[dict[str, Any]]:
        """What really happened to an order."""
        return [effect for effect in self.payments.effects() if effect["order_id"] == order]

    def keep_checkpoint(self) -> str:
        """One that was handed out, and so must be extended for ever."""
        with self.site.client("auditor") as auditor:
            note = auditor.checkpoint()
        self.checkpoints.append(note)
        return note

    def check_ledger(self) -> None:
        """``kblockd ledger verify`` against every checkpoint that was handed out, and a proof from the last one."""
        files = []
        for number, note in enumerate(self.checkpoints[-4:]):
            file = self.site.folder / f"checkpoint-{number}"
            file.write_text(note)
            files += ["--checkpoint", str(file)]
        said = self.site.command("ledger", "verify", *files, "--config", str(self.site.config))
        assert said.endswith("\nverified\n"), said
        self._check_growth()

    def _check_growth(self) -> None:
        old = _head(self.checkpoints[-1])
        with self.site.client("auditor") as auditor:
            proof = auditor.consistency_proof(old.size)
        new = _head(proof.checkpoint)
        verify_consistency(old.size, old.root, new.size, new.root, proof.hashes)
        self.checkpoints.append(proof.checkpoint)


def _head(note: str) -> checkpoint.TreeHead:
    """The text is trusted here: ``ledger verify`` has checked the signature of each that was kept."""
    return checkpoint.parse(note.partition("\n\n")[0] + "\n")


@dataclass
class Story:
    """One refund by one caller, with everything that was acknowledged so far."""

    world: World
    call: Call
    order: str
    pending: Answer | None = None
    approved: ApprovalView | None = None
    answered: Answer | None = None

    @classmethod
    def new(cls, world: World, environment: str = "production", *, keyed: bool = True) -> Story:
        """A new order and a new key."""
        number = next(_numbers)
        order = f"O-{id(world) % 10_000}-{number}"
        return cls(world, call(order, f"key-{order}" if keyed else None, environment), order)

    def tell(self) -> None:
        """Asks, approves and runs; raises ``Gone`` where the daemon dies."""
        with self.world.site.client() as agent:
            try:
                self._acknowledge(agent.execute(self.call))
                if self.pending is not None and self.answered is None:
                    self.approve()
                    self._acknowledge(agent.execute(self.call))
            except Unavailable as error:
                if error.reason == "NETWORK_ERROR":  # the daemon is gone; it refused nothing
                    raise Gone from error
                raise

    def approve(self) -> None:
        """By the lead."""
        assert self.pending is not None
        approve(self.world.site, self.pending.approval_id)
        with self.world.site.client("lead") as lead:
            self.approved = lead.approval(self.pending.approval_id)

    def tell_until_death(self) -> None:
        """As far as it gets."""
        with contextlib.suppress(Gone):
            self.tell()
        assert self.world.site.wait_dead() == -9

    @contextlib.contextmanager
    def running(self) -> Iterator[Future[Answer]]:
        """Asks and approves; while the block runs, the approved call is waited for in a thread."""
        with self.world.site.client() as agent, ThreadPoolExecutor(1) as thread:
            self._acknowledge(agent.execute(self.call))
            self.approve()
            yield thread.submit(agent.execute, self.call)

    def records(self) -> list[Record]:
        """What the ledger says of the execution, in order."""
        assert self.pending is not None
        with self.world.site.client("auditor") as auditor:
            found = auditor.read_ledger(limit=1000, execution_id=self.pending.execution_id)
        leaves = [leaf for _, leaf in found.leaves if b'"kblockd.record/1"' in leaf]
        return [read(leaf) for leaf in leaves]

    def wait_for(self, type_: RecordType, count: int = 1, seconds: float = 60.0) -> None:
        """Until the ledger holds so many records of that type; raises TimeoutError."""
        limit = time.monotonic() + seconds
        while [record.type for record in self.records()].count(type_) < count:
            if time.monotonic() > limit:
                raise TimeoutError(f"no {type_}")
            time.sleep(0.02)

    def finish(self) -> Answer:
        """With the same key, until the truth is known; nothing that was acknowledged may be asked for again."""
        site = self.world.site
        with site.client() as agent:
            answer = agent.execute(self.call)
            if isinstance(answer, ApprovalPending):
                with site.client("lead") as lead:
                    state = lead.approval(answer.approval_id).state
                if self.approved is not None:
                    assert state != "pending", "an approval that was acknowledged is asked for again"
                self._acknowledge(answer)
                if state == "pending":
                    self.approve()
                answer = agent.execute(self.call)
            for _ in range(4):
                if not isinstance(answer, InProgress):
                    break
                answer = agent.execute(self.call)
        self._acknowledge(answer)
        return answer

    def check_completed(self, answer: Answer) -> None:
        """Exactly one effect, proved, and every repeat says the same."""
        assert isinstance(answer, Completed), (answer.status, answer.state, answer.code, answer.detail)
        assert answer.result_class == "completed_verified"
        assert len(self.world.effects(self.order)) == 1
        self.check_sealed(answer)

    def check_failed(self, answer: Answer, result_class: str, code: str) -> None:
        """Sealed as failed, and every repeat says the same."""
        assert isinstance(answer, UpstreamError), (answer.status, answer.state, answer.code, answer.detail)
        assert (answer.result_class, answer.code) == (result_class, code)
        self.check_sealed(answer)

    def check_sealed(self, answer: Answer) -> None:
        """Signed RESULT and receipt verify offline; a repeat gets the same bytes."""
        with self.world.site.client() as agent:
            again = agent.execute(self.call)
            story = agent.get(execution_id=answer.execution_id)
        assert again.replayed
        assert again.result_dsse == answer.result_dsse != b""
        assert again.receipt_dsse == answer.receipt_dsse != b""
        claims = [event for event in story.events if event.record_type == "execution.claimed"]
        assert len(claims) >= 1
        check_offline(self.world.site, answer)

    def _acknowledge(self, answer: Answer) -> None:
        if self.pending is not None:
            assert answer.execution_id == self.pending.execution_id, "the key has lost its execution"
            assert answer.approval_id == self.pending.approval_id, "the approval was asked for anew"
        if self.answered is not None:
            assert answer.result_dsse == self.answered.result_dsse, "an acknowledged RESULT has changed"
        if isinstance(answer, ApprovalPending):
            self.pending = self.pending or answer
        elif not isinstance(answer, InProgress):
            self.answered = self.answered or answer


def check_offline(site: ForkedSite, answer: Answer) -> None:
    """With the pinned root alone."""
    verdict = verify_offline.verify(
        result=answer.result_dsse,
        receipt=answer.receipt_dsse,
        proof=answer.receipt_proof.encode(),
        root=(site.data / "keys" / "root.pub.pem").read_bytes(),
        keyset=(site.data / "keys" / "keyset.dsse.json").read_bytes(),
        action=answer.action_sha256,
        state=answer.state,
    )
    assert verdict.verdict == verify_offline.VERIFIED, verdict.reason
