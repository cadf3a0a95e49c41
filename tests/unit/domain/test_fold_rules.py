"""What single records make of the rows: the fields that later stages and answers read."""

from __future__ import annotations

import dataclasses

import orjson
import pytest

from kblockd.domain.errors import StoredUnreadable
from kblockd.domain.ledger import fold, rows
from kblockd.domain.states import IllegalTransition, ResultClass
from kblockd.execution.sweeper import closure
from tests.records import VERSION, WITHOUT_ROWS, RecordType, leaves, read
from tests.unit.domain.bodies import BODIES
from tests.unit.domain.histories import Ledger, Records, configured, hexdigest


def begun(*, effect: str = "allow", name: str = "exe_1", **about: str) -> tuple[Ledger, Records]:
    """An execution after stage 3."""
    ledger, made = Ledger(), Records(name)
    ledger.add(made.proposed(effect, **about))
    return ledger, made


def executing(**about: str) -> tuple[Ledger, Records]:
    """One that was claimed and sent."""
    ledger, made = begun(**about)
    ledger.add(made.claimed())
    ledger.add(made.sent())
    return ledger, made


def absent_once() -> tuple[Ledger, Records]:
    """Attempt 1 was lost and proved absent; attempt 2 is claimed."""
    ledger, made = executing()
    ledger.add(made.outcome("unknown_outcome", operation="op-1"))
    ledger.add(made.reconciled("absent"))
    ledger.add(made.planned("retry"))
    ledger.add(made.claimed(again=True, attempt=2))
    return ledger, made


def test_an_execution_row_holds_what_was_decided() -> None:
    """R505: the record of the action is there before anything is sent."""
    ledger, _ = begun(key="k")
    row = ledger.row("execution", "exe_1")
    assert {k: row[k] for k in ("id", "tenant", "state", "phase", "attempt", "marker", "approval_id", "records")} == {
        "id": "exe_1",
        "tenant": "acme",
        "state": "approved",
        "phase": "",
        "attempt": 0,
        "marker": 0,
        "approval_id": "",
        "records": [0],
    }
    of_the_record = {"input_payload", "reasons"}
    assert row.keys() >= BODIES[RecordType.PROPOSED].keys() - of_the_record
    assert not row.keys() & of_the_record
    assert "stages" not in row
    bound = ledger.row("caller_key", hexdigest("k"))
    assert bound == {"execution": "exe_1", "fingerprint": hexdigest("call"), "records": [0]}


def test_a_body_never_overwrites_what_the_fold_says() -> None:
    """The body's ``operation`` is the action's name; one called ``state`` would be believed by nobody."""
    ledger, made = Ledger(), Records("exe_1")
    record = made.proposed()
    theirs = {"state": "succeeded", "records": [7], "tenant": "other", "attempt": 9, "id": "exe_2"}
    for name, value in theirs.items():
        with pytest.raises(StoredUnreadable, match=r"execution\.proposed"):
            ledger.add(dataclasses.replace(record, body={**record.body, name: value}))
    ledger.add(record)
    row = ledger.row("execution", "exe_1")
    assert {name: row[name] for name in theirs} == {
        "state": "approved",
        "records": [0],
        "tenant": "acme",
        "attempt": 0,
        "id": "exe_1",
    }


@pytest.mark.parametrize("effect", ["deny", "require_approval"])
def test_only_allow_and_observe_need_no_approval(effect: str) -> None:
    ledger, _ = begun(effect=effect)
    assert ledger.row("execution", "exe_1")["state"] == "proposed"


def test_approvals_of_distinct_owners_are_counted() -> None:
    """Two accounts of one person are one approval (kblockd/execution/README.md#stages)."""
    ledger, made = begun(effect="require_approval")
    ledger.add(made.requested(2))
    ledger.add(made.decided(owner="person:lead"))
    ledger.add(made.decided(owner="person:lead"))
    assert ledger.row("approval", made.approval_id)["state"] == "pending"
    assert ledger.row("pending", "acme", "agent:a") == {"count": 1}
    index = ledger.add(made.decided(owner="person:chief"))
    approval = ledger.row("approval", made.approval_id)
    assert (approval["state"], len(approval["decisions"])) == ("approved", 3)
    assert approval["decisions"][-1] == {
        "approver": "local:chief",
        "owner": "person:chief",
        "verdict": "approve",
        "dsse_sha256": hexdigest("dsse"),
        "statement_sha256": hexdigest("statement"),
        "index": index,
    }
    assert ledger.row("execution", "exe_1")["state"] == "approved"
    assert ledger.row("pending", "acme", "agent:a") is None


def test_a_denial_counts_until_the_execution_is_rejected() -> None:
    ledger, made = begun(effect="require_approval")
    ledger.add(made.requested())
    ledger.add(made.decided("deny"))
    with pytest.raises(ValueError, match="the approval is denied"):
        ledger.add(made.decided("approve", "person:chief"))
    ledger.add(made.ended(RecordType.REJECTED))
    assert ledger.row("approval", made.approval_id)["state"] == "denied"
    assert ledger.row("execution", "exe_1")["code"] == "APPROVAL_DENIED"
    assert ledger.row("pending", "acme", "agent:a") is None
    assert ledger.row("open_call", hexdigest("call")) is None


def test_an_approval_is_used_by_one_claim() -> None:
    """R111: what was used or revoked carries no second consumption."""
    ledger, made = begun(effect="require_approval")
    ledger.add(made.requested())
    ledger.add(made.decided())
    ledger.add(made.claimed())
    assert ledger.row("approval", made.approval_id)["state"] == "used"
    with pytest.raises(ValueError, match="9 is not 9r"):
        ledger.add(made.claimed())
    with pytest.raises(ValueError, match="the approval is used"):
        ledger.add(made.revoked())


@pytest.mark.parametrize("approved", [False, True])
def test_a_revocation_closes_the_action(approved: bool) -> None:
    """R108: with its rejection, the approval stays revoked; nobody waits any more and no guard is left."""
    ledger, made = begun(effect="require_approval")
    ledger.add(made.requested())
    if approved:
        ledger.add(made.decided())
    ledger.add(made.revoked())
    ledger.add(made.ended(RecordType.REJECTED, "APPROVAL_REVOKED"))
    assert ledger.row("approval", made.approval_id)["state"] == "revoked"
    execution = ledger.row("execution", "exe_1")
    assert (execution["state"], execution["code"]) == ("rejected", "APPROVAL_REVOKED")
    assert not any(ledger.table(name) for name in ("open", "open_call", "pending"))


def test_a_revoked_approval_carries_no_claim() -> None:
    ledger, made = begun(effect="require_approval")
    ledger.add(made.requested())
    ledger.add(made.decided())
    ledger.add(made.revoked())
    with pytest.raises(ValueError, match="the approval is revoked"):
        ledger.add(made.claimed())


def test_the_consumption_stays_the_same_through_another_attempt() -> None:
    """R129, R135: one effect key, one consumption; 9r brings a fence, no second count and no second lock."""
    ledger, made = absent_once()
    row = ledger.row("execution", "exe_1")
    assert (row["consumed_index"], row["attempt"], row["marker"]) == (1, 2, 1)
    assert row["fence"] == {"incarnation": 1, "counter": 2}
    assert (row["result_class"], row["code"]) == ("", "")
    assert ledger.row("running", "acme", "payment.refund.create", "production") == {"count": 1}
    assert ledger.row("twin", hexdigest("deed"))["records"] == [0, 1]
    with pytest.raises(ValueError, match="another effect key"):
        ledger.add(made.claimed(again=True, attempt=2, effect_key=hexdigest("minted anew")))


def test_what_was_found_of_one_attempt_is_not_believed_of_the_next() -> None:
    """C2, R218: the absence of attempt 1 must not close an attempt 2 whose answer is missing as absent."""
    ledger, made = absent_once()
    claimed = ledger.row("execution", "exe_1")
    assert claimed["finding"]["finding"] == "absent"
    assert closure(ledger.read(rows.execution("exe_1")))[0] is ResultClass.FAILED_BEFORE_SIDE_EFFECT
    ledger.add(made.sent())
    row = ledger.row("execution", "exe_1")
    assert not any(row[name] for name in ("finding", "verification", "recovery", "operation_id", "output_sha256"))
    assert closure(ledger.read(rows.execution("exe_1")))[0] is ResultClass.UNKNOWN_OUTCOME
    ledger.add(made.outcome("unknown_outcome"))
    assert closure(ledger.read(rows.execution("exe_1")))[0] is ResultClass.UNKNOWN_OUTCOME


@pytest.mark.parametrize("path", ["claimed", "sent", "lost", "not_sent", "absent", "again", "sent again"])
def test_closure_says_what_the_records_prove(path: str) -> None:
    """R460, R461: without a marker nothing was called; claimed again means that the attempt before is proved absent."""
    ledger, made = begun()
    ledger.add(made.claimed())
    steps = {
        "claimed": [],
        "sent": ["sent"],
        "lost": ["sent", "lost"],
        "not_sent": ["sent", "not_sent"],
        "absent": ["sent", "lost", "absent"],
        "again": ["sent", "not_sent", "again"],
        "sent again": ["sent", "not_sent", "again", "sent"],
    }
    for step in steps[path]:
        ledger.add(
            {
                "sent": made.sent,
                "lost": lambda: made.outcome("unknown_outcome"),
                "not_sent": lambda: made.outcome("failed_before_side_effect"),
                "absent": made.reconciled,
                "again": lambda: made.claimed(again=True, attempt=2),
            }[step]()
        )
    expected = {
        "claimed": ResultClass.NOT_STARTED,
        "sent": ResultClass.UNKNOWN_OUTCOME,
        "lost": ResultClass.UNKNOWN_OUTCOME,
        "not_sent": ResultClass.FAILED_BEFORE_SIDE_EFFECT,
        "absent": ResultClass.FAILED_BEFORE_SIDE_EFFECT,
        "again": ResultClass.FAILED_BEFORE_SIDE_EFFECT,
        "sent again": ResultClass.UNKNOWN_OUTCOME,
    }
    assert closure(ledger.read(rows.execution("exe_1")))[0] is expected[path]


def test_lse_01_a_marker_under_an_older_fence_does_not_fold() -> None:
    """The paused holder wakes up after somebody else has claimed: its marker is refused by the fence."""
    ledger, made = begun()
    ledger.add(made.claimed())
    ledger.add(made.claimed(again=True))
    with pytest.raises(ValueError, match="another holder"):
        ledger.add(made.sent(counter=1))
    ledger.add(made.sent(counter=2))


@pytest.mark.parametrize(("incarnation", "counter"), [(2, 5), (2, 4), (1, 9)])
def test_lse_01_a_claim_under_an_older_fence_does_not_fold(incarnation: int, counter: int) -> None:
    """Fences are ordered by incarnation, then counter."""
    ledger, made = begun()
    ledger.add(made.claimed(fence={"incarnation": 2, "counter": 5}))
    stale = {"incarnation": incarnation, "counter": counter}
    with pytest.raises(ValueError, match="the fence is not newer"):
        ledger.add(made.claimed(again=True, fence=stale))
    ledger.add(made.claimed(again=True, fence={"incarnation": 3, "counter": 1}))


def test_an_attempt_is_marked_once() -> None:
    """C2: the number of a marker never comes twice."""
    ledger, made = executing()
    ledger.add(made.outcome("failed_before_side_effect"))
    with pytest.raises(ValueError, match="attempt 1 was sent already"):
        ledger.add(made.claimed(again=True, attempt=1))


@pytest.mark.parametrize("class_", sorted(set(ResultClass) - {""}))
def test_an_attempt_has_one_of_four_outcomes(class_: str) -> None:
    """R210: the other classes are what verification and the seal say."""
    ledger, made = executing()
    record = made.outcome(class_, operation="op-1")
    places = {
        "completed_unverified": "verifying",
        "unknown_outcome": "reconciling",
        "failed_before_side_effect": "recovering",
        "accepted": "accepted",
    }
    if class_ not in places:
        with pytest.raises(ValueError, match="an attempt has no outcome"):
            ledger.add(record)
        return
    ledger.add(record)
    row = ledger.row("execution", "exe_1")
    assert (row["phase"], row["result_class"], row["operation_id"]) == (places[class_], class_, "op-1")
    assert row["operation"] == "payment.refund.create"


def test_rpc_09_a_late_answer_is_evidence_and_moves_nothing() -> None:
    """An answer after the end is kept beside the outcome, never over it."""
    ledger, made = executing()
    ledger.add(made.outcome("unknown_outcome", output=""))
    ledger.add(made.sealed("failed", "unknown_outcome"))
    before = ledger.row("execution", "exe_1")
    index = ledger.add(made.outcome("completed_unverified", late=True, output="late"))
    after = ledger.row("execution", "exe_1")
    late = {"class": "completed_unverified", "output_sha256": hexdigest("late"), "index": index}
    assert after == {**before, "late": late, "records": [*before["records"], index]}


def test_a_late_answer_that_decides_is_the_output() -> None:
    """What came too late for its attempt and in time for the reconciliation is what verification reads."""
    ledger, made = executing()
    ledger.add(made.outcome("unknown_outcome", output=""))
    with pytest.raises(ValueError, match="no answer came late"):
        ledger.add(made.reconciled("present", "late_answer"))
    ledger.add(made.outcome("completed_unverified", late=True, output="late"))
    ledger.add(made.reconciled("present"))
    assert ledger.row("execution", "exe_1")["output_sha256"] == ""
    ledger.add(made.reconciled("present", "late_answer"))
    row = ledger.row("execution", "exe_1")
    assert (row["phase"], row["output_sha256"]) == ("reconciling", hexdigest("late"))


def test_a_late_answer_needs_a_call() -> None:
    ledger, made = begun()
    ledger.add(made.claimed())
    with pytest.raises(ValueError, match="never sent"):
        ledger.add(made.outcome("completed_unverified", late=True))


def test_a_hold_gives_up_the_fence_and_the_target_but_never_the_twin() -> None:
    """C10, C23: nobody does the deed again while it is unresolved."""
    ledger, made = executing()
    ledger.add(made.held(keep_lock=False))
    row = ledger.row("execution", "exe_1")
    assert (row["state"], row["fence"], row["holder"], row["code"]) == ("held", None, "", "OUTCOME_UNKNOWN")
    assert ledger.row("target", "acme", "payments", "order", "A-1") is None
    assert ledger.row("twin", hexdigest("deed"))["execution"] == "exe_1"
    assert ledger.row("running", "acme", "payment.refund.create", "production") is None
    assert ledger.row("open", "exe_1") is not None


def test_a_resolution_frees_no_lock_that_somebody_else_has_by_now() -> None:
    """The target that a hold gave up may be another's; the seal that follows leaves it alone."""
    ledger, made = executing()
    ledger.add(made.held(keep_lock=False))
    other = Records("exe_2")
    ledger.add(other.proposed(deed="another deed", call="another call"))
    ledger.add(other.claimed())
    ledger.add(made.resolved())
    ledger.add(made.sealed())
    assert ledger.row("target", "acme", "payments", "order", "A-1")["execution"] == "exe_2"
    assert ledger.row("running", "acme", "payment.refund.create", "production") == {"count": 1}
    assert ledger.row("execution", "exe_1")["resolution"] == {
        "finding": "present",
        "operator": "local:operator",
        "owner": "person:operator",
        "reason_sha256": hexdigest("reason"),
    }


def test_a_second_claim_of_a_deed_or_of_a_target_does_not_fold() -> None:
    """C10: the conditions of stage 9 say so first; the fold would say so too."""
    ledger, _ = executing()
    same_deed, same_target = Records("exe_2"), Records("exe_3")
    ledger.add(same_deed.proposed(call="2", target="A-2"))
    ledger.add(same_target.proposed(call="3", deed="another"))
    with pytest.raises(ValueError, match=r"twin .* is taken already"):
        ledger.add(same_deed.claimed())
    with pytest.raises(ValueError, match=r"target .* is taken already"):
        ledger.add(same_target.claimed())


def test_an_unknown_keeps_the_twin_until_a_disposition_says_what_it_was() -> None:
    """C10, R501: unprovable frees nothing; present does, once and only its own."""
    ledger, made = executing()
    ledger.add(made.sealed("failed", "unknown_outcome"))
    ledger.add(made.disposition("unprovable"))
    assert ledger.row("twin", hexdigest("deed")) is not None
    index = ledger.add(made.disposition("present"))
    assert ledger.row("twin", hexdigest("deed")) is None
    row = ledger.row("execution", "exe_1")
    assert (row["state"], row["result_class"]) == ("failed", "unknown_outcome")
    assert row["disposition"] == {
        "kind": "closed_by_operator",
        "sha256": hexdigest("disposition"),
        "index": index,
    }
    other = Records("exe_2")
    ledger.add(other.proposed())
    ledger.add(other.claimed())
    ledger.add(made.disposition("absent"))
    assert ledger.row("twin", hexdigest("deed"))["execution"] == "exe_2"


def test_only_a_sealed_unknown_has_a_disposition() -> None:
    ledger, made = executing()
    with pytest.raises(ValueError, match="not sealed as unknown"):
        ledger.add(made.disposition())
    ledger.add(made.sealed("failed", "failed_before_side_effect"))
    with pytest.raises(ValueError, match="not sealed as unknown"):
        ledger.add(made.disposition())


def test_a_seal_writes_the_outcome_for_ever() -> None:
    """R502: state, class and codes; nothing moves the execution afterwards."""
    ledger, made = executing()
    index = ledger.add(made.sealed("failed", "failed_after_side_effect"))
    row = ledger.row("execution", "exe_1")
    wanted = {
        "state": "failed",
        "result_class": "failed_after_side_effect",
        "code": "UPSTREAM_FAILED",
        "wire_code": "REFUSED",
        "sealed_index": index,
        "outcome_unknown": False,
        "result_sha256": hexdigest("result exe_1"),
        "fence": None,
    }
    assert {name: row[name] for name in wanted} == wanted
    with pytest.raises(IllegalTransition):
        ledger.add(made.sealed())


@pytest.mark.parametrize("state", ["executing", "held", "approved", "done"])
def test_a_seal_ends_succeeded_or_failed(state: str) -> None:
    ledger, made = executing()
    with pytest.raises(ValueError):  # noqa: PT011 - the word is the enum's, or the fold's
        ledger.add(made.sealed(state))


def test_a_proposal_takes_no_name_that_is_taken() -> None:
    """IDM-01: a caller key is bound for ever; an open keyless call until it is closed."""
    ledger, made = begun(key="k")
    for record in (Records("exe_1").proposed(call="2"), Records("exe_2").proposed(key="k", call="2")):
        with pytest.raises(ValueError, match="is taken already"):
            ledger.add(record)
    ledger.add(made.ended(RecordType.CANCELLED))
    with pytest.raises(ValueError, match=r"caller_key .* is taken already"):
        ledger.add(Records("exe_2").proposed(key="k"))
    keyless = Records("exe_3")
    ledger.add(keyless.proposed())
    with pytest.raises(ValueError, match=r"open_call .* is taken already"):
        ledger.add(Records("exe_4").proposed())
    ledger.add(keyless.ended(RecordType.EXPIRED))
    ledger.add(Records("exe_4").proposed())


def test_the_active_key_is_the_one_that_was_added_last_and_has_not_ended() -> None:
    """The seal is conditioned on this row."""
    ledger = Ledger()
    ledger.add(configured(RecordType.KEY_ADDED, "old"))
    assert ledger.row("key", "old")["state"] == "active"
    ledger.add(configured(RecordType.KEY_ADDED, "new"))
    ledger.add(configured(RecordType.KEY_RETIRED, "old"))
    assert ledger.row("active_key", "result")["kid"] == "new"
    assert (ledger.row("key", "old")["state"], ledger.row("key", "old")["toIndex"]) == ("retired", 9)
    ledger.add(configured(RecordType.KEY_REVOKED, "new"))
    assert ledger.row("active_key", "result") is None
    assert ledger.row("key", "new")["state"] == "revoked"


@pytest.mark.parametrize("type_", sorted(WITHOUT_ROWS))
def test_what_is_only_on_record_changes_no_row(type_: RecordType) -> None:
    for leaf in leaves():
        assert read(leaf).type != type_ or fold({}.get, 0, leaf) == []


@pytest.mark.parametrize("type_", sorted(set(RecordType) - {RecordType.STORE_RESTORED}))
def test_a_record_without_its_body_raises_and_names_what_is_missing(type_: RecordType) -> None:
    """Never a KeyError from the depths, never a row by halves."""
    ledger, _ = executing()
    leaf = {"v": VERSION, "type": type_, "at": "", "tenant": "acme", "execution": "exe_1", "attempt": 1, "stage": 9}
    before = dict(ledger.rows)
    with pytest.raises((ValueError, IllegalTransition)):
        ledger.add(orjson.dumps({**leaf, "body": {}}, option=orjson.OPT_SORT_KEYS))
    assert ledger.rows == before


def test_keys_of_targets_and_counters_are_scoped() -> None:
    """One tenant's lock and counter are not another's."""
    ledger, _ = executing()
    there = Records("exe_2", tenant="other")
    ledger.add(there.proposed(call="other tenant", deed="other tenant"))
    ledger.add(there.claimed())
    assert set(ledger.table("target")) == {
        rows.target("acme", "payments", "order", "A-1"),
        rows.target("other", "payments", "order", "A-1"),
    }
    assert len(ledger.table("running")) == 2
