"""The fold over random histories of several executions, against a model that knows nothing of rows.

Legal records fold and leave the rows that the guarantees rest on; illegal ones raise and change nothing; every row
follows from the records that it lists (kblockd/README.md#the-one-idea).
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kblockd.domain.ledger import rows
from kblockd.domain.states import TERMINAL
from tests.records import WRITES, Record, RecordType
from tests.unit.domain.bodies import faults
from tests.unit.domain.histories import Ledger, Records, configured, hexdigest

EXECUTING = ("claimed", "sent", "accepted", "reconciling", "verifying", "recovering")
CONFIGURATION = (
    RecordType.POLICY_ACTIVATED,
    RecordType.POLICY_REFUSED,
    RecordType.CONTRACT_ACTIVATED,
    RecordType.UPSTREAM_ACTIVATED,
    RecordType.PRINCIPAL_CHANGED,
    RecordType.KEY_ADDED,
    RecordType.KEY_RETIRED,
    RecordType.KEY_REVOKED,
    RecordType.DAEMON_STARTED,
    RecordType.DAEMON_STOPPED,
    RecordType.STORE_PRUNED,
)


@dataclass
class Model:
    """One execution; ``at`` is its state, or its phase while it executes."""

    records: Records
    agent: str
    key: str
    call: str
    deed: str
    aim: str
    operation: str
    at: str
    effect: str
    approval: str = ""
    count: int = 1
    owners: set[str] = field(default_factory=set)
    marker: int = 0
    attempt: int = 0
    unknown: bool = False
    sealed: bool = False
    receipt: bool = False
    claims: int = 0
    late: bool = False
    written: list[int] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.records.execution

    @property
    def executing(self) -> bool:
        return self.at in EXECUTING

    @property
    def closed(self) -> bool:
        return self.at in [str(state) for state in TERMINAL]


def _requested(m: Model) -> Record:
    m.count = 1 + len(m.id) % 2
    return m.records.requested(m.count, m.agent)


MAKE: dict[str, Callable[[Model], Record]] = {
    "request": _requested,
    "approve": lambda m: m.records.decided("approve", f"person:{len(m.owners)}"),
    "approve again": lambda m: m.records.decided("approve", "person:0"),
    "deny": lambda m: m.records.decided("deny", "person:x"),
    "revoke": lambda m: m.records.revoked(),
    "reject": lambda m: m.records.ended(RecordType.REJECTED),
    "expire": lambda m: m.records.ended(RecordType.EXPIRED, "TASK_EXPIRED"),
    "cancel": lambda m: m.records.ended(RecordType.CANCELLED, "BINDING_CHANGED"),
    "claim": lambda m: m.records.claimed(),
    "claim again": lambda m: m.records.claimed(again=True, attempt=m.marker + 1),
    "send": lambda m: m.records.sent(),
    "answered": lambda m: m.records.outcome("completed_unverified"),
    "lost": lambda m: m.records.outcome("unknown_outcome", output=""),
    "accepted": lambda m: m.records.outcome("accepted", operation="op-1"),
    "not sent": lambda m: m.records.outcome("failed_before_side_effect", output=""),
    "operation": lambda m: m.records.accepted(),
    "late": lambda m: m.records.outcome("completed_unverified", late=True),
    "reconciled": lambda m: m.records.reconciled(),
    "found late": lambda m: m.records.reconciled("present", "late_answer"),
    "verified": lambda m: m.records.verified(),
    "planned": lambda m: m.records.planned(),
    "hold": lambda m: m.records.held(keep_lock=False),
    "contain": lambda m: m.records.held(keep_lock=True),
    "resolve": lambda m: m.records.resolved(),
    "succeed": lambda m: m.records.sealed(),
    "fail": lambda m: m.records.sealed("failed", "failed_before_side_effect"),
    "seal unknown": lambda m: m.records.sealed("failed", "unknown_outcome"),
    "present": lambda m: m.records.disposition("present"),
    "absent": lambda m: m.records.disposition("absent"),
    "unprovable": lambda m: m.records.disposition("unprovable"),
}
"""Every kind of record about an execution, made as if it were legal now."""

FROM: dict[str, tuple[str, ...]] = {
    "request": ("proposed",),
    "approve": ("pending_approval",),
    "approve again": ("pending_approval",),
    "deny": ("pending_approval",),
    "revoke": ("pending_approval", "approved"),
    "reject": ("proposed", "pending_approval", "approved"),
    "expire": ("pending_approval", "approved"),
    "cancel": ("pending_approval", "approved"),
    "claim": ("approved",),
    "claim again": ("claimed", "recovering"),
    "send": ("claimed",),
    "answered": ("sent", "accepted"),
    "lost": ("sent", "accepted"),
    "accepted": ("sent",),
    "not sent": ("sent",),
    "operation": ("accepted",),
    "reconciled": ("claimed", "recovering", "reconciling"),
    "found late": ("claimed", "recovering", "reconciling"),
    "verified": ("reconciling", "verifying"),
    "planned": ("reconciling", "verifying", "recovering"),
    "hold": EXECUTING,
    "contain": EXECUTING,
    "resolve": ("held",),
    "succeed": ("reconciling", "verifying", "held"),
    "fail": (*EXECUTING, "held"),
    "seal unknown": (*EXECUTING, "held"),
    "present": ("failed",),
    "absent": ("failed",),
    "unprovable": ("failed",),
}
"""Where each is legal; what else must hold says ``Histories.legal``."""

TO = {
    "request": "pending_approval",
    "reject": "rejected",
    "expire": "expired",
    "cancel": "cancelled",
    "claim": "claimed",
    "claim again": "claimed",
    "send": "sent",
    "answered": "verifying",
    "lost": "reconciling",
    "accepted": "accepted",
    "not sent": "recovering",
    "reconciled": "reconciling",
    "found late": "reconciling",
    "verified": "verifying",
    "planned": "recovering",
    "hold": "held",
    "contain": "held",
    "succeed": "succeeded",
    "fail": "failed",
    "seal unknown": "failed",
}


class Histories(RuleBasedStateMachine):
    """Few names, so that executions get into each other's way."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.all: list[Model] = []
        self.twins: dict[str, str] = {}
        self.targets: dict[str, str] = {}
        self.calls: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.written: dict[RecordType, set[str]] = defaultdict(set)

    # What happens

    @rule(
        effect=st.sampled_from(["allow", "observe", "require_approval", "require_approval", "deny"]),
        agent=st.sampled_from(["agent:a", "agent:b"]),
        key=st.sampled_from(["", "", "k1", "k2", "k3"]),
        call=st.sampled_from(["c1", "c2", "c3"]),
        deed=st.sampled_from(["d1", "d2"]),
        aim=st.sampled_from(["A-1", "A-2"]),
        operation=st.sampled_from(["refund", "cancel"]),
    )
    def propose(self, effect: str, **about: str) -> None:
        made = Records(f"exe_{'x' * (len(self.all) % 2)}{len(self.all)}")
        at = "approved" if effect in ("allow", "observe") else "proposed"
        model = Model(made, at=at, effect=effect, **about)
        record = made.proposed(effect, **{"target" if name == "aim" else name: word for name, word in about.items()})
        taken = model.key in self.keys if model.key else model.call in self.calls
        if taken:
            self.raises(record)
            return
        self.fold(model, record)
        self.all.append(model)
        (self.keys if model.key else self.calls)[model.key or model.call] = model.id

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.all[-4:]), "execution")
        legal = [kind for kind in MAKE if self.legal(model, kind)]
        if legal:
            kind = data.draw(st.sampled_from(legal), "kind")
            self.act(model, kind)

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def illegal(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.all), "execution")
        kinds = [kind for kind in MAKE if not self.legal(model, kind)]
        kind = data.draw(st.sampled_from(kinds), "kind")
        self.forbid(model, kind)

    @precondition(lambda self: any(model.sealed and not model.receipt for model in self.all))
    @rule()
    def receipt(self) -> None:
        model = next(model for model in self.all if model.sealed and not model.receipt)
        index = self.ledger.add(model.records.receipt())
        model.receipt = True
        assert self.ledger.row("receipt", model.id)["index"] == index

    @rule(known=st.booleans(), data=st.data())
    def refuse(self, known: bool, data: st.DataObject) -> None:
        """A refusal never touches the execution that it is about."""
        before = dict(self.ledger.rows)
        about = data.draw(st.sampled_from(self.all)).records if known and self.all else Records("")
        index = self.ledger.add(about.refused())
        surplus = self.ledger.rows.keys() - before.keys()
        assert surplus == ({rows.refusal(about.execution, index)} if about.execution else set())
        assert all(self.ledger.rows[key] == row for key, row in before.items())

    @rule(type_=st.sampled_from(CONFIGURATION), name=st.sampled_from(["one", "two"]))
    def configure(self, type_: RecordType, name: str) -> None:
        """A change of the configuration touches no execution."""
        before = {key: row for key, row in self.ledger.rows.items() if key[0] in GUARDS}
        record = configured(type_, name)
        assert faults(record) == []
        self.ledger.add(record)
        assert before == {key: row for key, row in self.ledger.rows.items() if key[0] in GUARDS}

    # What must hold

    @invariant()
    def guards(self) -> None:
        assert self.holders("twin") == {hexdigest(deed): who for deed, who in self.twins.items()}
        assert self.holders("target") == self.targets
        assert self.holders("open") == {model.id: model.id for model in self.all if not model.closed}
        assert self.holders("open_call") == {hexdigest(call): who for call, who in self.calls.items()}
        assert self.holders("caller_key") == {hexdigest(key): who for key, who in self.keys.items()}

    @invariant()
    def counters(self) -> None:
        pending = Counter(("acme", m.agent) for m in self.all if m.at == "pending_approval")
        running = Counter(("acme", m.operation, "production") for m in self.all if m.executing)
        assert {key[1:]: row["count"] for key, row in self.ledger.table("pending").items()} == dict(pending)
        assert {key[1:]: row["count"] for key, row in self.ledger.table("running").items()} == dict(running)

    @invariant()
    def projections(self) -> None:
        for model in self.all:
            row = self.ledger.row("execution", model.id)
            state = "executing" if model.executing else model.at
            assert (row["state"], row["phase"]) == (state, model.at if model.executing else "")
            assert row["records"] == model.written
            assert (row["marker"], row["attempt"]) == (model.marker, model.attempt)
            assert model.claims <= 1
            if model.approval:
                assert self.ledger.row("approval", model.records.approval_id)["state"] == model.approval

    @invariant()
    def rows_follow_from_their_records(self) -> None:
        self.ledger.check_rows(since=len(self.ledger.leaves) - 1)

    def teardown(self) -> None:
        self.ledger.check_rows()

    # The model

    def legal(self, model: Model, kind: str) -> bool:
        if kind == "late":
            return model.marker > 0 and model.records.attempt <= model.marker
        if model.at not in FROM[kind]:
            return False
        if kind in ("present", "absent", "unprovable"):
            return model.unknown
        if kind in ("approve", "approve again", "deny"):
            return model.approval == "pending"
        if kind == "found late":
            return model.late
        if kind == "revoke":
            return model.approval in ("pending", "approved")
        if kind == "claim":
            free = model.deed not in self.twins and model.aim not in self.targets
            return free and model.approval in ("", "approved")
        return True

    def follow(self, model: Model, kind: str) -> None:
        """What the record means, in the model's own words."""
        before = model.at
        model.at = TO.get(kind, model.at)
        match kind:
            case "request":
                model.approval = "pending"
            case "approve" | "approve again":
                model.owners.add(f"person:{len(model.owners)}" if kind == "approve" else "person:0")
                if len(model.owners) >= model.count:
                    model.approval, model.at = "approved", "approved"
            case "deny":
                model.approval = "denied"
            case "revoke":
                model.approval = "revoked"
            case "reject" | "expire" | "cancel":
                self.close(model)
                if model.approval and model.approval not in ("denied", "revoked"):
                    model.approval = "expired" if kind == "expire" else "void"
            case "claim":
                model.claims += 1
                model.attempt = 1
                self.twins[model.deed] = self.targets[model.aim] = model.id
                model.approval = "used" if model.approval else ""
            case "claim again":
                model.attempt = model.marker + 1
            case "late":
                model.late = True
            case "send":
                model.marker = model.attempt
            case "hold":
                self.free(self.targets, model.aim, model)
            case "succeed" | "fail" | "seal unknown":
                assert before != "failed"
                model.sealed, model.unknown = True, kind == "seal unknown"
                self.close(model)
                self.free(self.targets, model.aim, model)
                if not model.unknown:
                    self.free(self.twins, model.deed, model)
            case "present" | "absent":
                self.free(self.twins, model.deed, model)

    def close(self, model: Model) -> None:
        if not model.key:
            del self.calls[model.call]

    @staticmethod
    def free(guards: dict[str, str], name: str, model: Model) -> None:
        if guards.get(name) == model.id:
            del guards[name]

    # Means

    def act(self, model: Model, kind: str) -> None:
        """A legal record."""
        self.fold(model, MAKE[kind](model))
        self.follow(model, kind)

    def forbid(self, model: Model, kind: str) -> None:
        """An illegal one."""
        made = model.records
        before = (made.attempt, made.counter, made.approval_id)
        self.raises(MAKE[kind](model))
        made.attempt, made.counter, made.approval_id = before

    def check(self) -> None:
        """Everything that must hold."""
        self.guards()
        self.counters()
        self.projections()
        self.ledger.check_rows()

    def fold(self, model: Model, record: Record) -> None:
        assert faults(record) == []
        before = dict(self.ledger.rows)
        model.written.append(self.ledger.add(record))
        keys = before.keys() | self.ledger.rows.keys()
        changed = {str(key[0]) for key in keys if before.get(key) != self.ledger.rows.get(key)}
        self.written[record.type] |= changed
        assert changed <= set(WRITES[record.type]), record.type

    def raises(self, record: Record) -> None:
        before = (dict(self.ledger.rows), len(self.ledger.leaves))
        with pytest.raises(Exception) as raised:  # noqa: PT011 - the type is looked at below
            self.ledger.add(record)
        assert type(raised.value).__name__ in ("IllegalTransition", "ValueError")
        assert (self.ledger.rows, len(self.ledger.leaves)) == before

    def holders(self, table: str) -> dict[Any, Any]:
        """What is guarded, to who guards it."""
        return {key[-1]: row["execution"] for key, row in self.ledger.table(table).items()}


GUARDS = ("execution", "open", "open_call", "caller_key", "twin", "target", "approval", "pending", "running")


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestHistories = Histories.TestCase

ABOUT = {"agent": "agent:a", "call": "c1", "deed": "d1", "aim": "A-1", "operation": "refund"}


def replayed(effect: str, path: tuple[str, ...]) -> tuple[Histories, Model]:
    """A ledger with one execution that has gone this way."""
    histories = Histories()
    histories.propose(effect=effect, key="k1" if effect == "allow" else "", **ABOUT)
    model = histories.all[0]
    for kind in path:
        histories.act(model, kind)
    return histories, model


@functools.cache
def explored() -> tuple[set[str], dict[RecordType, set[str]]]:
    """One execution of up to two attempts, exhaustively: the places it came to, the tables that records wrote."""
    paths: list[tuple[str, tuple[str, ...]]] = [("allow", ()), ("require_approval", ())]
    known: set[Any] = set()
    written: dict[RecordType, set[str]] = defaultdict(set)
    while paths:
        effect, path = paths.pop(0)
        _, model = replayed(effect, path)
        place = (
            model.at,
            model.approval,
            len(model.owners),
            model.marker,
            model.unknown,
            model.late,
            path[-1:] == ("present",),
        )
        if place in known or model.marker > 2:
            continue
        known.add(place)
        for kind in MAKE:
            histories, model = replayed(effect, path)
            if not histories.legal(model, kind):
                histories.forbid(model, kind)
                continue
            histories.act(model, kind)
            histories.check()
            paths.append((effect, (*path, kind)))
            for type_, tables in histories.written.items():
                written[type_] |= tables
    return {place[0] for place in known}, written


def test_every_kind_of_record_in_every_place_of_an_execution() -> None:
    """C6: what is legal folds and leaves every guard right, all else raises and changes nothing."""
    places, _ = explored()
    assert places == {"proposed", *TO.values(), "approved"}


def test_what_a_record_writes_is_what_the_documentation_says() -> None:
    """``WRITES`` names exactly the tables that a record can write."""
    _, written = explored()
    made = Records("exe_1")
    loose: list[tuple[RecordType, Record | bytes]] = [(type_, configured(type_, "one")) for type_ in CONFIGURATION]
    for type_, record in [*loose, (RecordType.CALL_REFUSED, made.refused()), (RecordType.RECEIPT, made.receipt())]:
        ledger = Ledger()
        if type_ in (RecordType.KEY_RETIRED, RecordType.KEY_REVOKED):
            ledger.add(configured(RecordType.KEY_ADDED, "one"))
        before = dict(ledger.rows)
        ledger.add(record)
        keys = before.keys() | ledger.rows.keys()
        written[type_] = {str(key[0]) for key in keys if before.get(key) != ledger.rows.get(key)}
    # An answer of stage 0 and a lost lease are on record and in no row; a restore nobody writes yet.
    rowless = {RecordType.AUTHZ_DECIDED, RecordType.LEASE_LOST, RecordType.STORE_RESTORED}
    none: dict[RecordType, set[str]] = {type_: set() for type_ in rowless}
    assert {type_: set(tables) for type_, tables in WRITES.items()} == {**none, **written}
