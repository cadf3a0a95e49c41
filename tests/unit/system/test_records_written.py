"""What a running daemon puts on record, held against the table that the tests of the domain are made of.

Records that the tests invent prove nothing if the code writes others: here a daemon lives through the usual story and
the usual faults, and its ledger is read back record by record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kblockd.client.answers import Answer, ApprovalPending, Held
from kblockd.client.errors import CallError
from kblockd.domain.outcome import Finding
from tests.harness import EFFECT_FREE, Site, approve, refund
from tests.records import Record, RecordType, read
from tests.unit.domain.bodies import faults
from tests.unit.domain.histories import Ledger
from tests.upstreams.payments import PaymentsServer, Switches

ON_RECORD = {
    RecordType.PROPOSED,
    RecordType.APPROVAL_REQUESTED,
    RecordType.APPROVAL_DECIDED,
    RecordType.APPROVAL_REVOKED,
    RecordType.CALL_REFUSED,
    RecordType.REJECTED,
    RecordType.CLAIMED,
    RecordType.SENT,
    RecordType.ATTEMPT_OUTCOME,
    RecordType.RECONCILED,
    RecordType.VERIFIED,
    RecordType.RECOVERY_PLANNED,
    RecordType.HELD,
    RecordType.RESOLVED,
    RecordType.SEALED,
    RecordType.RECEIPT,
    RecordType.POLICY_ACTIVATED,
    RecordType.CONTRACT_ACTIVATED,
    RecordType.UPSTREAM_ACTIVATED,
    RecordType.PRINCIPAL_CHANGED,
    RecordType.KEY_ADDED,
    RecordType.DAEMON_STARTED,
    RecordType.DAEMON_STOPPED,
}
pytestmark = pytest.mark.xdist_group("records written")
WORDS = "order-of-a-customer@example.com"


@pytest.fixture(scope="module")
def leaves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[bytes]]:
    """The whole ledger of two lives of a daemon."""
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as payments, Site.make() as site:
        site.configure(
            payments.url,
            contract={
                "execution": {"maximum_attempts": 2},
                "tool": EFFECT_FREE,
                "verification": {"maximum_duration_seconds": 1},
            },
        )
        site.pin()
        site.start()
        live(site, payments)
        site.stop()
        site.start()
        with site.client("operator") as operator:
            yield [leaf for _, leaf in operator.read_ledger(limit=1000).leaves]


def live(site: Site, payments: PaymentsServer) -> None:
    """Done; lost and found; refused by the upstream; held and resolved; denied; withdrawn; refused to a role."""
    done(site, "A-1")
    payments.control(lose_answer_once=True)
    done(site, "A-2")
    payments.control(refuse=True)
    done(site, "A-3")
    payments.control(**{**vars(Switches()), "list_lag_seconds": 600.0})
    held = done(site, "A-4")
    assert isinstance(held, Held)
    with site.client("operator") as operator:
        operator.resolve(held.execution_id, Finding.PRESENT, f"seen in the ledger of the bank: {WORDS}")
    done(site, "A-5", "deny")
    with site.client() as agent:
        agent.revoke(agent.execute(refund("A-7", key=WORDS)).approval_id, f"not wanted any more: {WORDS}")
    with site.client("lead") as lead, pytest.raises(CallError):
        lead.execute(refund("A-6", key=WORDS))


def done(site: Site, order: str, verdict: str = "approve") -> Answer:
    """One refund, approved or denied by the lead."""
    call = refund(order, key=f"{order} {WORDS}")
    with site.client() as agent:
        pending = agent.execute(call)
        assert isinstance(pending, ApprovalPending)
        approve(site, pending.approval_id, verdict)
        return agent.execute(call)


def test_the_story_wrote_every_kind_of_record(leaves: list[bytes]) -> None:
    """So that the tests below look at all of them."""
    assert {read(leaf).type for leaf in leaves} >= ON_RECORD


def test_ldg_23_no_body_holds_free_text(leaves: list[bytes]) -> None:
    """R503: every field of every record is an identifier, a code, a digest, a number, a flag or a time."""
    records = [record for record in map(read, leaves) if record.type != RecordType.RECEIPT]
    assert [fault for record in records for fault in faults(record)] == []


def test_no_words_of_people_are_in_the_ledger(leaves: list[bytes]) -> None:
    """Keys, reasons and arguments are there by digest only; the target's id is the name of a lock."""
    text = b"\n".join(leaves)
    for word in (WORDS, "as agreed", "seen in the ledger", "100.00", "EUR"):
        assert word.encode() not in text


def test_every_leaf_is_the_record_that_it_reads_as(leaves: list[bytes]) -> None:
    for leaf in leaves:
        record: Record = read(leaf)
        if record.type == RecordType.RECEIPT:
            assert json.loads(leaf)["predicate"]["executionId"] == record.execution
        else:
            assert record.leaf() == leaf


def test_a_real_history_folds_and_every_row_follows_from_its_records(leaves: list[bytes]) -> None:
    """The same as for invented ones: pure, and each row again from the records that it lists."""
    ledger = Ledger()
    for leaf in leaves:
        ledger.add(leaf)
        ledger.check_rows(since=len(ledger.leaves) - 1)
    ledger.check_rows()
    assert {row["state"] for row in ledger.table("execution").values()} == {"succeeded", "failed", "rejected"}
    assert not any(ledger.table(name) for name in ("open", "open_call", "twin", "target", "pending", "running"))
