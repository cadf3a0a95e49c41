"""The seven worked examples (R072), with their contracts, on both engines: situation by situation, the same answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kblockd_http.settings import Settings

from kblockd.config import load
from kblockd.domain.canonical import digest
from kblockd.domain.contract.derive import derive_target, summary, validate_arguments
from kblockd.policy.bundles.bundle import read
from kblockd.policy.deciding.entrypoints import DECISION, PRECONDITIONS, RECOVERY, VERIFICATION
from tests.conformance.test_both_engines import OTHERS, changed, paths, said
from tests.contract.policy.support import kind_of
from tests.unit.policy_library.examples import ACTIONS, DIGEST, EXAMPLES, Changes, contract, question

CONFIG = Path(__file__).parents[3] / "config"
REFUND, TICKET, RESTART, FIREWALL = (
    "payment.refund.create",
    "ticket.create",
    "service.restart.execute",
    "firewall.rule.change",
)
EMAIL, DELETE, DEPLOY = "email.send", "record.delete", "application.deploy"

# (operation, what differs from the canonical call, effect, owners who must approve, code)
DECISIONS: list[tuple[str, Changes, str, int, str]] = [
    (TICKET, {}, "allow", 0, "TICKET"),
    (TICKET, {"/args/priority": "urgent"}, "require_approval", 1, "PAGES"),
    (TICKET, {"/args/queue": "board"}, "deny", 0, "QUEUE"),
    (RESTART, {}, "require_approval", 1, "RESTART"),
    (RESTART, {"/args/service": "payments"}, "require_approval", 2, "CRITICAL_SERVICE"),
    (RESTART, {"/args/service": "payments", "/args/strategy": "all_at_once"}, "deny", 0, "OUTAGE"),
    (FIREWALL, {}, "require_approval", 2, "OPEN_OUTSIDE"),
    (FIREWALL, {"/args/cidr": "10.1.0.0/16"}, "require_approval", 1, "OPEN_INSIDE"),
    (FIREWALL, {"/args/cidr": "0.0.0.0/0"}, "deny", 0, "TOO_WIDE"),
    (FIREWALL, {"/args/port": 22}, "deny", 0, "INSIDE_ONLY"),
    (EMAIL, {}, "require_approval", 1, "EXTERNAL"),
    (EMAIL, {"/args/to": "bob@acme.example"}, "allow", 0, "INTERNAL"),
    (EMAIL, {"/args/to": "clerk@court.example"}, "require_approval", 2, "WEIGHTY"),
    (EMAIL, {"/args/body": "the password: hunter2"}, "deny", 0, "SECRET"),
    (REFUND, {}, "require_approval", 1, "REFUND"),
    (REFUND, {"/args/amount": "500.01"}, "require_approval", 2, "LARGE_REFUND"),
    (REFUND, {"/args/amount": "5000.01"}, "deny", 0, "REFUND_LIMIT"),
    (DELETE, {}, "require_approval", 2, "IRREVERSIBLE"),
    (DELETE, {"/args/type": "audit_log"}, "deny", 0, "KEPT"),
    (DEPLOY, {}, "require_approval", 1, "CANARY"),
    (DEPLOY, {"/args/strategy": "all"}, "require_approval", 2, "ALL_AT_ONCE"),
    (DEPLOY, {"/args/application": "kernel"}, "deny", 0, "APPLICATION"),
    *((operation, {"/principal/kind": "person"}, "deny", 0, "NO_RULE") for operation in EXAMPLES),
    *((operation, {"/action/risk_tier": "none"}, "deny", 0, "UNKNOWN_RISK") for operation in EXAMPLES),
]
# (operation, what differs, codes of what does not hold)
PROBLEMS: list[tuple[str, Changes, set[str]]] = [
    *((operation, {}, set()) for operation in EXAMPLES),
    *((operation, {"/envelope/target/version": "99"}, {"VERSION_CHANGED"}) for operation in EXAMPLES),
    (TICKET, {"/snapshot/open": False}, {"QUEUE_CLOSED"}),
    (RESTART, {"/snapshot/operation_running": True}, {"OPERATION_RUNNING"}),
    (RESTART, {"/snapshot/healthy_instances": 1}, {"TOO_FEW_HEALTHY"}),
    (RESTART, {"/snapshot/frozen_until": "2026-12-01T00:00:00Z"}, {"FROZEN"}),
    (FIREWALL, {"/snapshot/rules": EXAMPLES[FIREWALL].read["rules"]}, {"RULE_EXISTS"}),
    (FIREWALL, {"/args/change": "remove"}, {"NO_SUCH_RULE"}),
    (EMAIL, {"/snapshot/suppressed": True}, {"SUPPRESSED"}),
    (EMAIL, {"/snapshot/consented": False}, {"NO_CONSENT"}),
    (REFUND, {"/snapshot/status": "open"}, {"NOT_REFUNDABLE"}),
    (REFUND, {"/args/amount": "100.01"}, {"AMOUNT"}),
    (DELETE, {"/snapshot/legal_hold": True}, {"LEGAL_HOLD"}),
    (DELETE, {"/snapshot/backed_up_at": "2026-11-27T10:00:00Z"}, {"NO_BACKUP"}),
    (DEPLOY, {"/snapshot/artifact/signer": "somebody"}, {"NOT_SIGNED"}),
    (DEPLOY, {"/snapshot/artifact/scan/at": "2026-10-01T00:00:00Z"}, {"NOT_SCANNED"}),
    (DEPLOY, {"/snapshot/running": DIGEST}, {"RUNS_ALREADY"}),
]
UNSEEN, DUPLICATE = ("inconclusive", "NOT_SEEN"), ("prohibited", "DUPLICATE")
# (operation, what differs, verdict, code)
VERDICTS: list[tuple[str, Changes, tuple[str, str]]] = [
    *((operation, {}, ("expected", "")) for operation in EXAMPLES),
    *((operation, {"/read": {}}, UNSEEN) for operation in EXAMPLES),
    (TICKET, {"/read/tickets": list(EXAMPLES[TICKET].read["tickets"]) * 2}, DUPLICATE),
    (
        TICKET,
        {"/read/tickets": [{**EXAMPLES[TICKET].read["tickets"][0], "priority": "low"}]},
        ("tolerated", "TOLERATED"),
    ),
    (RESTART, {"/read/restarts": 2}, DUPLICATE),
    (RESTART, {"/read/healthy_instances": 2}, ("tolerated", "TOLERATED")),
    (RESTART, {"/read/operation_state": "running"}, UNSEEN),
    (RESTART, {"/read/other_changes": ["payments"]}, ("prohibited", "UNRELATED")),
    (RESTART, {"/read/application_version": "4.0.0"}, ("prohibited", "OTHER_VERSION")),
    (FIREWALL, {"/read/rules": []}, UNSEEN),
    (FIREWALL, {"/read/rules": list(EXAMPLES[FIREWALL].read["rules"]) * 2}, DUPLICATE),
    (EMAIL, {"/read/messages": list(EXAMPLES[EMAIL].read["messages"]) * 2}, DUPLICATE),
    (EMAIL, {"/read/messages": [{**EXAMPLES[EMAIL].read["messages"][0], "state": "bounced"}]}, UNSEEN),
    (REFUND, {"/read/refunds": list(EXAMPLES[REFUND].read["refunds"]) * 2}, DUPLICATE),
    (DELETE, {"/read/state": "purging"}, ("tolerated", "TOLERATED")),
    (DELETE, {"/read/dependents_deleted": 3}, ("prohibited", "CASCADED")),
    (DEPLOY, {"/read/digest": "sha256:ff"}, ("prohibited", "OTHER_ARTIFACT")),
    (DEPLOY, {"/read/state": "canary", "/read/healthy_instances": 1}, ("tolerated", "TOLERATED")),
]
PARTIAL: Changes = {"/outcome/class": "partially_completed"}
# (operation, what differs, recovery): nothing was done and an attempt is left, unless a situation says otherwise
RECOVERIES: list[tuple[str, Changes, str]] = [
    (TICKET, {}, "retry"),
    (TICKET, {"/args/priority": "urgent"}, "manual"),
    (TICKET, PARTIAL, "manual"),
    (RESTART, {}, "retry"),
    (RESTART, {"/args/service": "payments"}, "manual"),
    (RESTART, PARTIAL, "containment"),
    (FIREWALL, {}, "manual"),
    (FIREWALL, {"/args/change": "remove"}, "retry"),
    (FIREWALL, {"/finding": {"finding": "present", "verdict": "prohibited"}}, "containment"),
    (EMAIL, {}, "manual"),
    (EMAIL, {"/args/to": "bob@acme.example"}, "retry"),
    (REFUND, {}, "retry"),
    (REFUND, {"/args/amount": "500.01"}, "manual"),
    (DELETE, {}, "manual"),
    (DELETE, PARTIAL, "containment"),
    (DEPLOY, {}, "manual"),
    (DEPLOY, {"/outcome/class": "failed_after_side_effect"}, "containment"),
    *((operation, {"/finding": {"finding": "unprovable", "verdict": ""}}, "manual") for operation in EXAMPLES),
]


def codes(result: Any) -> list[str]:
    """Of the reasons."""
    return [reason["code"] for reason in result["reasons"]]


@pytest.mark.parametrize("name", ["embedded", "opa"])
async def test_r072_every_situation_of_every_action_gets_its_answer(name: str) -> None:
    """R072, R110, R282, R586: the table is one, so both engines answer alike."""
    with kind_of(name) as kind:
        engine = kind.engine()
        await engine.activate(read(CONFIG / "policy"))

        async def ask(entrypoint: str, operation: str, changes: Changes) -> Any:
            return (await engine.evaluate(entrypoint, question(operation, changes))).result

        try:
            for operation, changes, effect, count, code in DECISIONS:
                result = await ask(DECISION, operation, changes)
                said = (result["effect"], result["approvals"]["count"], codes(result))
                assert said == (effect, count, [code]), (operation, changes)
            for operation, changes, problems in PROBLEMS:
                result = await ask(PRECONDITIONS, operation, changes)
                assert set(codes(result)) - {"DECISION_CHANGED"} == problems, (operation, changes)
                assert result["ok"] is (not problems), (operation, changes)
            for operation, changes, (verdict, code) in VERDICTS:
                result = await ask(VERIFICATION, operation, changes)
                assert (result["verdict"], "".join(codes(result))) == (verdict, code), (operation, changes)
            for operation, changes, recovery in RECOVERIES:
                assert (await ask(RECOVERY, operation, changes))["recovery"] == recovery, (operation, changes)
        finally:
            await engine.close()


def twisted() -> Iterator[dict[str, Any]]:
    """Each example with one thing left out, or put in another way."""
    for operation in EXAMPLES:
        full = question(operation, {})
        for path in paths(full):
            if path[0] in ("args", "snapshot", "read", "principal", "outcome", "finding"):
                yield changed(full, path)
                yield from (changed(full, path, other) for other in OTHERS)


async def test_r072_what_else_may_come_is_judged_alike() -> None:
    """R072: callers and upstreams send what they like; both engines say the same of it."""
    with kind_of("embedded") as one, kind_of("opa") as two:
        engines = [one.engine(), two.engine()]
        try:
            for engine in engines:
                await engine.activate(read(CONFIG / "policy"))
            different = []
            for given in itertools.islice(twisted(), 0, None, 11):
                for entrypoint in (DECISION, PRECONDITIONS, VERIFICATION, RECOVERY):
                    left, right = [await said(engine, entrypoint, given) for engine in engines]
                    if left != right:
                        different.append((entrypoint, left, right, given))
        finally:
            for engine in engines:
                await engine.close()
    assert different == []


def test_every_example_has_its_contract_and_situations() -> None:
    """R046, R072: the seven, no more and no less, each with something before, after and instead."""
    assert {file.stem for file in ACTIONS.iterdir()} == set(EXAMPLES)
    for table in (DECISIONS, PROBLEMS, VERDICTS, RECOVERIES):
        assert {row[0] for row in table} == set(EXAMPLES)


@pytest.mark.parametrize("operation", EXAMPLES)
def test_the_canonical_call_fits_its_contract(operation: str) -> None:
    """R047, R048: the arguments of the examples are those that the contract takes, and the approver can read them."""
    made, args = contract(operation), dict(EXAMPLES[operation].args)
    assert validate_arguments(made, args) == ()
    assert validate_arguments(made, {**args, "extra": 1})
    target = derive_target(made, args)
    intent = question(operation, {})["action"]["intent"]
    assert all(str(value) in summary(made, target, intent) for value in intent.values())
    assert made.requires_approval == (operation == DELETE)


def test_the_http_upstreams_are_pinned_as_they_are_written() -> None:
    """R018: whoever starts from the shipped files has only the tools of the payment provider left to review."""
    found = load(CONFIG / "kblockd.yaml", check_pins=False)
    for name, upstream in found.upstreams.items():
        served = {} if name == "payments" else Settings.model_validate(upstream.settings).tools
        written = {tool: digest({"name": tool, "request": one.model_dump(mode="json")}) for tool, one in served.items()}
        pinned = {tool: pin.definition_sha256 for tool, pin in upstream.tools.items()}
        assert pinned == (written or dict.fromkeys(pinned)), f"`kblockd upstream pin {name}` prints others"
    assert {made.tool.upstream for made in found.contracts.values()} == set(found.upstreams)
