"""Records as the pipeline writes them, and a ledger that folds them: what the tests of the fold are made of.

``bodies`` says of every field what it may hold, of these records and of a running daemon's alike.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any

import orjson

from kblockd.domain.clock import rfc3339
from kblockd.domain.ledger import fold, rows
from kblockd.domain.ledger.rows import COUNTERS, Key
from tests.records import RECEIPT_PREDICATE, TIMED, Record, RecordType, document

START = dt.datetime(2026, 11, 1, 12, 0, tzinfo=dt.UTC)


def hexdigest(text: str) -> str:
    """A digest that stands for something."""
    return hashlib.sha256(text.encode()).hexdigest()


def decision(decision_id: str, *reasons: str) -> dict[str, Any]:
    """The fields that every record of a decision has."""
    return {
        "policy_engine": "embedded",
        "policy_revision": hexdigest("policy"),
        "decision_id": decision_id,
        "input_sha256": hexdigest("input"),
        "input_payload": hexdigest(f"kept input of {decision_id}"),
        "policy_us": 800,
        "reasons": list(reasons),
    }


class Ledger:
    """Leaves and rows. Rows go through JSON, as they do on disk; ``versions`` are the records that wrote them last."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.rows: dict[Key, bytes] = {}
        self.versions: dict[Key, int] = {}

    def row(self, *key: str | int) -> Any:
        """The row, or None."""
        return document(self.read(key))

    def read(self, key: Key) -> Any:
        """The row as the fold reads it, or None."""
        found = self.rows.get(key)
        return None if found is None else rows.decode(str(key[0]), found)

    def table(self, name: str) -> dict[Key, Any]:
        """All rows of one table."""
        return {key: self.row(*key) for key in self.rows if key[0] == name}

    def add(self, record: Record | bytes) -> int:
        """Folds one more record; whatever the fold raises leaves everything as it was. Holds it to being pure."""
        leaf = record if isinstance(record, bytes) else record.leaf()
        index = len(self.leaves)
        seen: dict[Key, Any] = {}

        def read(key: Key) -> Any:
            if key not in seen:
                seen[key] = self.read(key)
            return seen[key]

        try:
            changes = fold(read, index, leaf)
            assert fold(read, index, leaf) == changes, "the fold gives two answers"
        finally:
            assert seen == {key: self.read(key) for key in seen}, "the fold changed a row that it read"
        assert len({key for key, _ in changes}) == len(changes), "one record writes a row twice"
        self.leaves.append(leaf)
        for key, row in changes:
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = rows.encode(row)
                self.versions[key] = index
        return index

    def again(self, key: Key) -> Any:
        """The row, folded from nothing over the records that it lists: what the start and ``verify`` rely on."""
        state: dict[Key, Any] = {}
        for index in self.row(*key)["records"]:
            for changed, row in fold(state.get, index, self.leaves[index]):
                state[changed] = None if row is None else rows.decode(str(changed[0]), rows.encode(row))
        return document(state.get(key))

    def check_rows(self, since: int = 0) -> None:
        """Every row that lists its records follows from them, and was written last by the last of them; with ``since``
        only those that a record from there on has written."""
        for key in self.rows:
            if self.versions[key] < since:
                continue
            row = self.row(*key)
            if key[0] in COUNTERS:
                assert row.keys() == {"count"}
                assert row["count"] > 0
                continue
            indexes = row["records"]
            assert indexes == sorted(set(indexes)), key
            assert indexes[-1] == self.versions[key], key
            assert self.again(key) == row, key


class Records:
    """Writes the records of one execution; ``at`` goes on by a second each."""

    def __init__(self, execution: str, tenant: str = "acme") -> None:
        self.execution = execution
        self.tenant = tenant
        self.attempt = 0
        self.counter = 0
        self.seconds = 0
        self.approval_id = ""

    def make(self, type_: RecordType, stage: int | None, **body: Any) -> Record:
        """One record with the timings that the journal puts in, where its type has them."""
        self.seconds += 1
        at = rfc3339(START + dt.timedelta(seconds=self.seconds))
        body = {**body, "stages": [[stage or 0, 120]]} if type_ in TIMED else body
        return Record(type_, at, self.tenant, self.execution, self.attempt, stage, body)

    def proposed(
        self,
        effect: str = "allow",
        *,
        agent: str = "agent:a",
        key: str = "",
        call: str = "call",
        deed: str = "deed",
        target: str = "A-1",
        operation: str = "payment.refund.create",
    ) -> Record:
        """Stage 3; ``key`` empty means a keyless call."""
        return self.make(
            RecordType.PROPOSED,
            3,
            action_id="act-1",
            agent=agent,
            requester=agent,
            owner="team:a",
            environment="production",
            operation=operation,
            risk_tier="high",
            upstream="payments",
            origin="https://payments.example:443",
            place_sha256=hexdigest("place"),
            tool="refund",
            tool_version="1.0.0",
            definition_sha256=hexdigest("definition"),
            contract_sha256=hexdigest("contract"),
            contract_version=1,
            floor={"count": 0, "roles": [], "raised": False, "policy_effect": effect, "policy_count": 0},
            target={"type": "order", "id": target},
            twin=hexdigest(deed),
            fingerprint=hexdigest(call),
            caller_key=hexdigest(key) if key else "",
            action_sha256=hexdigest(f"action {self.execution}"),
            call_sha256=hexdigest(f"call {self.execution}"),
            reasons_sha256=hexdigest("reasons"),
            effect=effect,
            observe_until="",
            not_after=rfc3339(START + dt.timedelta(hours=1)),
            **decision("dec_1", "REVIEW"),
            trace_id="0" * 32,
        )

    def requested(self, count: int = 1, agent: str = "agent:a") -> Record:
        """In the commit of stage 3."""
        self.approval_id = f"apr_{self.execution}"
        return self.make(
            RecordType.APPROVAL_REQUESTED,
            3,
            approval_id=self.approval_id,
            action_sha256=hexdigest(f"action {self.execution}"),
            presented_sha256=hexdigest("presented"),
            presentation_payload=hexdigest("payload"),
            count=count,
            roles=["finance"],
            floor_roles=[],
            raised=False,
            target_version="7",
            requester=agent,
            owner="team:a",
            agent=agent,
            not_before=rfc3339(START),
            not_after=rfc3339(START + dt.timedelta(hours=1)),
        )

    def decided(self, verdict: str = "approve", owner: str = "person:lead") -> Record:
        """Stage 4, by one approver."""
        return self.make(
            RecordType.APPROVAL_DECIDED,
            4,
            approval_id=self.approval_id,
            verdict=verdict,
            approver=f"local:{owner.partition(':')[2]}",
            owner=owner,
            dsse_sha256=hexdigest("dsse"),
            statement_sha256=hexdigest("statement"),
            presented_sha256=hexdigest("presented"),
            reason_sha256=hexdigest("reason"),
        )

    def revoked(self) -> Record:
        """An approval taken back before its use."""
        return self.make(
            RecordType.APPROVAL_REVOKED,
            4,
            approval_id=self.approval_id,
            principal="local:lead",
            owner="person:lead",
            capacity="approver",
            reason_sha256=hexdigest("reason"),
        )

    def ended(self, type_: RecordType, code: str = "APPROVAL_DENIED") -> Record:
        """Rejected, expired or cancelled."""
        return self.make(type_, 4, code=code, policy_revision="", reasons=[])

    def refused(self) -> Record:
        """A call on this execution that was refused; on record in the name of nobody's attempt."""
        return self.make(
            RecordType.CALL_REFUSED, None, reason="PERMISSION_DENIED", principal="agent:b", method="Execute"
        )

    def authorized(self) -> Record:
        """Stage 0, of no execution."""
        body = {
            **decision("dec_0", "OWN_ACTIONS"),
            "principal": "agent:b",
            "method": "/kblock.v1.ExecutionService/Execute",
            "allow": True,
            "view_sha256": hexdigest("view"),
        }
        return Record(RecordType.AUTHZ_DECIDED, self.make(RecordType.SENT, 10).at, "acme", "", 0, 0, body)

    def refused_decision(self) -> Record:
        """Stage 3 decided, and something else stood in the way: there is no execution."""
        body = {
            **decision("dec_1", "WATCHED"),
            "reason": "OBSERVE_ENDED",
            "principal": "agent:b",
            "method": "/kblock.v1.ExecutionService/Execute",
            "effect": "observe",
            "observe_until": "2026-10-01T00:00:00Z",
            "floor": None,
        }
        return Record(RecordType.CALL_REFUSED, self.make(RecordType.SENT, 10).at, "acme", "", 0, 3, body)

    def claimed(self, *, again: bool = False, attempt: int = 1, incarnation: int = 1, **changes: Any) -> Record:
        """Stage 9, or 9r; each brings the next fence."""
        self.attempt = attempt
        self.counter += 1
        body = {
            "again": again,
            "effect_key": hexdigest(f"effect {self.execution}"),
            "fence": {"incarnation": incarnation, "counter": self.counter},
            "holder": "kblockd-1",
            "lease_ttl_seconds": 30,
            "approval_id": self.approval_id,
            "snapshot_sha256": hexdigest("snapshot"),
            "target_version": "7",
            "deadline_at": rfc3339(START + dt.timedelta(minutes=5)),
            **decision("dec_2", "STANDS"),
        }
        return self.make(RecordType.CLAIMED, 9, **{**body, **changes})

    def sent(self, *, incarnation: int = 1, counter: int = 0) -> Record:
        """Stage 10."""
        fence = {"incarnation": incarnation, "counter": counter or self.counter}
        return self.make(RecordType.SENT, 10, fence=fence, boot="b-1", effect_key=hexdigest(f"effect {self.execution}"))

    def outcome(self, class_: str, *, late: bool = False, operation: str = "", output: str = "output") -> Record:
        """Stage 12, or an answer that came too late."""
        return self.make(
            RecordType.ATTEMPT_OUTCOME,
            12,
            **{"class": class_},
            sent="answered",
            is_error=False,
            code="",
            operation=operation,
            output_sha256=hexdigest(output) if output else "",
            detail_sha256="",
            raw_sha256="",
            request_ids={"request": "r-1"},
            late=late,
            proof="not_sent" if class_ == "failed_before_side_effect" else "",
            at_work=class_ == "accepted",
            answer_form="",
            answer_status=200,
            answer_media_type="application/json",
            answer_rpc_code=0,
        )

    def accepted(self, operation: str = "op-1") -> Record:
        """The operation's id, before the first poll."""
        return self.make(RecordType.OPERATION_ACCEPTED, 12, operation=operation)

    def reconciled(self, finding: str = "absent", by: str = "effect_key") -> Record:
        """Stage 13."""
        read = hexdigest("read")
        return self.make(RecordType.RECONCILED, 13, finding=finding, by=by, read_sha256=read, code="")

    def verified(self, verdict: str = "expected", class_: str = "completed_verified") -> Record:
        """Stage 14."""
        return self.make(
            RecordType.VERIFIED,
            14,
            **{"class": class_},
            verdict=verdict,
            source="authoritative_read",
            read_sha256=hexdigest("read"),
            code="",
            **decision("dec_3"),
        )

    def planned(self, recovery: str = "manual", class_: str = "unknown_outcome") -> Record:
        """Stage 15."""
        return self.make(
            RecordType.RECOVERY_PLANNED,
            15,
            **{"class": class_},
            recovery=recovery,
            **decision("dec_4", "OUTCOME_UNKNOWN"),
        )

    def held(self, *, keep_lock: bool = True) -> Record:
        """Waits for an operator."""
        return self.make(RecordType.HELD, 16, **{"class": ""}, code="OUTCOME_UNKNOWN", keep_lock=keep_lock)

    def resolved(self, finding: str = "present") -> Record:
        """An operator's finding, in the commit of the seal."""
        return self.make(
            RecordType.RESOLVED,
            16,
            finding=finding,
            operator="local:operator",
            owner="person:operator",
            reason_sha256=hexdigest("reason"),
        )

    def sealed(self, state: str = "succeeded", class_: str = "completed_verified") -> Record:
        """Stage 16."""
        failed = state == "failed"
        return self.make(
            RecordType.SEALED,
            16,
            **{"class": class_},
            state=state,
            code="UPSTREAM_FAILED" if failed else "",
            wire_code="REFUSED" if failed else "",
            detail_sha256=hexdigest("detail"),
            result_sha256=hexdigest(f"result {self.execution}"),
            key="key-1",
            outcome_unknown=class_ == "unknown_outcome",
        )

    def receipt(self) -> bytes:
        """The receipt's own leaf."""
        predicate = {"executionId": self.execution, "issuedAt": rfc3339(START)}
        return orjson.dumps({"predicateType": RECEIPT_PREDICATE, "predicate": predicate}, option=orjson.OPT_SORT_KEYS)

    def disposition(self, finding: str = "present") -> Record:
        """What a sealed unknown turned out to be."""
        return self.make(
            RecordType.DISPOSITION,
            16,
            **{"class": "completed_verified"},
            kind="closed_by_operator",
            finding=finding,
            operator="local:operator",
            owner="person:operator",
            reason_sha256=hexdigest("reason"),
            disposition_sha256=hexdigest("disposition"),
        )


def configured(type_: RecordType, name: str) -> Record:
    """A record of the configuration about ``name``."""
    key = {
        "kid": name,
        "role": "result",
        "publicKey": hexdigest(name),
        "fromIndex": 0,
        "keysetSha256": hexdigest("keyset"),
    }
    person = {"kind": "person", "tenant": "acme", "owner": "person:a", "roles": ["finance"], "organization": ""}
    bodies: dict[RecordType, dict[str, Any]] = {
        RecordType.POLICY_ACTIVATED: {
            "revision": name,
            "engine": "embedded",
            "tests": 3,
            "bundle_sha256": hexdigest(name),
            "bundle_revision": "v12",
            "signer": "release-2026",
            "signature_scope": "",
        },
        RecordType.POLICY_REFUSED: {"revision": name, "faults": 2},
        RecordType.CONTRACT_ACTIVATED: {
            "operation": name,
            "environment": "production",
            "version": 1,
            "contract_sha256": hexdigest(name),
        },
        RecordType.UPSTREAM_ACTIVATED: {
            "name": name,
            "adapter": "mcp",
            "origin": "https://payments.example:443",
            "config_sha256": hexdigest(name),
        },
        RecordType.PRINCIPAL_CHANGED: {**person, "id": name, "disabled": False},
        RecordType.KEY_ADDED: key,
        RecordType.KEY_RETIRED: {**key, "toIndex": 9},
        RecordType.KEY_REVOKED: {**key, "toIndex": 3},
        RecordType.DAEMON_STARTED: {
            "incarnation": 1,
            "instance": "kblockd-1",
            "version": "0.1.0",
            "after_clean_stop": True,
        },
        RecordType.DAEMON_STOPPED: {"incarnation": 1},
        RecordType.STORE_PRUNED: {"what": name, "before_index": 7, "older_than": rfc3339(START), "count": 2},
    }
    return Record(type_, rfc3339(START), body=bodies[type_])
