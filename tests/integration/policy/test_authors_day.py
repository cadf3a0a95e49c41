"""A day of somebody who writes policies: a limit is added, broken in six ways, mended, weighed, signed, in force.

The limit and its test are those of the guide, letter by letter. Each message is read as a newcomer would read it: the
file, the place, what is wrong, and what to do next.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from typing import Final

import pytest
from click.testing import Result

from kblockd.client.answers import Answer, Completed, Denied
from kblockd.policy.activation import standing
from tests.harness import ROOT, approve, refund
from tests.integration.policy.author import RELEASE, RULES, TESTS, Desk, desk

ANCHOR: Final = "limit := limits[input.args.currency]\n"
GUIDE: Final = (ROOT / "config" / "policy" / "README.md").read_text()
LIMIT, TEST = re.findall(r"^```rego\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)[:2]


@dataclass(frozen=True)
class Said:
    """Of the line of ``file`` where ``text`` stands ("" for a file that is not there): what is wrong, the next step."""

    file: str
    text: str
    what: str
    step: str


@dataclass(frozen=True)
class Breakage:
    """``old`` becomes ``new`` in ``file``, or the file goes away; ``tested`` is what ``policy test`` says instead."""

    file: str
    old: str
    new: str
    said: Said
    tested: Said | None = None


SYNTAX: Final = "correct it here or in the rule before: a bracket, comma or quote too many or missing"
FAILING: Final = "a condition of this test does not hold"
NEW_TEST: Final = "test_gift_cards_have_a_limit_of_their_own"
IN_THEIR_OWN_WORDS: Final = {
    "embedded": {
        "syntax": "expecting `}`",
        "call": 'io.jwt.verify_hs256(input.args.order_id, "key")',
        "refused": "io.jwt.verify_hs256 is not a function of the embedded engine; OPA has it",
        "instead": "write it without; what only OPA has needs policy.engine opa",
    },
    "opa": {
        "syntax": "unexpected",
        "call": 'http.send({"url": "http://limits"})',
        "refused": "http.send may not be called",
        "instead": "put the fact into the input",
    },
}


def breakages(engine: str) -> dict[str, Breakage]:
    """Six ways; what the two engines call by names of their own has the same next step."""
    words = IN_THEIR_OWN_WORDS[engine]
    both, comma = '"GIFT_CARD" "message"', '"GIFT_CARD", "message"'
    answer = '"observe_until": "",\n\t"reasons": [{"code": "NO_RULE"'
    typed = "return exactly the keys and types of the entry point"
    return {
        "syntax": Breakage(RULES, comma, both, Said(RULES, both, words["syntax"], SYNTAX)),
        "type": Breakage(
            "decision.rego",
            answer,
            answer.replace('""', "null"),
            Said("decision.rego", "default result :=", "observe_until", typed),
            Said("decision_test.rego", "test_unknown_action_is_denied", FAILING, "correct the rule or the test"),
        ),
        "undefined": Breakage(
            RULES,
            "asked > gift_card_most",
            "asked > gift_cards_most",
            Said(RULES, "gift_cards_most", "gift_cards_most", "correct its name, or give it a value first"),
        ),
        "unsupported": Breakage(
            RULES,
            'startswith(input.args.order_id, "GIFT-")',
            words["call"],
            Said(RULES, words["call"], words["refused"], words["instead"]),
        ),
        "failing": Breakage(
            RULES,
            "gift_card_most := 5000",
            "gift_card_most := 500",
            Said(TESTS, NEW_TEST, f"{NEW_TEST} fails: {FAILING}", "correct the rule or the test"),
        ),
        "missing": Breakage(
            "recovery.rego",
            "",
            "",
            Said("", "", "package kblock.recovery has no rule `result`", "add a file with package kblock.recovery"),
        ),
    }


def test_pol_05_a_policy_authors_day() -> None:
    """R108, R487, POL-04: a limit comes into force by its own merits, and no broken one ever does."""
    with desk("embedded", whole=False) as day:
        passes(day)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["embedded", "opa"])
def test_pol_05_a_policy_authors_day_over_the_whole_library(engine: str) -> None:
    """The same with every worked example and its tests, by each engine."""
    with desk(engine, whole=True) as day:
        passes(day)


def passes(day: Desk) -> None:
    """From the morning to the evening."""
    calls = asked_for_refunds(day)
    adds_a_limit(day)
    for name, breakage in breakages(day.engine).items():
        is_told_what_is_wrong(day, name, breakage)
    sees_the_tests_pass(day)
    asks_on_both_sides_of_the_limit(day)
    sees_which_refunds_would_have_changed(day, calls)
    brings_it_into_force(day)
    sees_it_decide(day)


def asked_for_refunds(day: Desk) -> dict[str, str]:
    """What the ledger holds before the limit: order to execution. The last one was approved and ran."""
    calls = {}
    with day.site.client() as agent:
        for order, amount in (("GIFT-1", "50.00"), ("GIFT-2", "50.01"), ("A-3", "50.01"), ("GIFT-4", "90.00")):
            asked = agent.execute(refund(order, amount, key=order))
            calls[order] = asked.execution_id
        approve(day.site, asked.approval_id)
        assert isinstance(agent.execute(refund("GIFT-4", "90.00", key="GIFT-4")), Completed)
    return calls


def adds_a_limit(day: Desk) -> None:
    """As the guide says."""
    day.edit(RULES, ANCHOR, f"{LIMIT}\n{ANCHOR}")
    with (day.library / TESTS).open("a") as file:
        file.write(f"\n{TEST}")


def is_told_what_is_wrong(day: Desk, name: str, breakage: Breakage) -> None:
    """By ``check``, by ``test``, by the daemon that is to reload it and by ``status``; the old one goes on deciding."""
    whole = day.site.folder / f"before-{name}"
    shutil.copytree(day.library, whole)
    try:
        breaks(day, breakage)
        reads(day, day.draft("check"), breakage.said)
        reads(day, day.draft("test"), breakage.tested or breakage.said)
        before, refusals = standing.read(day.site.data), len(day.records("policy.refused"))
        assert before is not None
        day.pack_by_hand()
        reads(day, day.policy("reload"), breakage.said)
        status = day.policy("status")
        assert status.exit_code == 1
        assert f"in force: {before.revision} since {before.since}" in status.stdout
        assert breakage.said.what in status.stdout.partition("last refused at")[2]
        assert len(day.records("policy.refused")) > refusals
        assert not isinstance(asks(day, f"GIFT-{name}", "60.00"), Denied)
    finally:
        shutil.rmtree(day.library)
        whole.rename(day.library)


def breaks(day: Desk, breakage: Breakage) -> None:
    if breakage.old:
        day.edit(breakage.file, breakage.old, breakage.new)
    else:
        (day.library / breakage.file).unlink()


def reads(day: Desk, shown: Result, said: Said) -> None:
    """One line has all of it."""
    assert shown.exit_code == 1, shown.output
    place = rf"{re.escape(said.file)}:{day.line(said.file, said.text)}:[1-9]\d*: " if said.file else ""
    wanted = rf"(?m)^\s*{place}.*{re.escape(said.what)}.*; .*{re.escape(said.step)}"
    assert re.search(wanted, shown.stderr), (wanted, shown.stderr)
    assert "Traceback" not in shown.output


def sees_the_tests_pass(day: Desk) -> None:
    """The new rule fires in its test; OPA itself says the same of the same files."""
    assert day.draft("check", "--strict").exit_code == 0
    shown = day.draft("test", "--json")
    found = json.loads(shown.stdout)
    assert (shown.exit_code, found["failed"], found["missing"]) == (0, 0, [])
    assert RULES not in {rule["file"] for rule in found["rules"]["never_fired"]}
    assert f"PASS: {found['passed']}/{found['passed']}" in day.opa("test", ".")
    day.opa("check", "--strict", ".")


def asks_on_both_sides_of_the_limit(day: Desk) -> None:
    """With an input as the guide writes it."""
    answers = {}
    for amount in ("50.00", "50.01"):
        document = {
            "v": "kblockd.policy/1",
            "principal": {"kind": "agent"},
            "action": {"type": "payment.refund.create", "risk_tier": "high", "environment": "production"},
            "args": {"order_id": "GIFT-9", "amount": amount, "currency": "EUR"},
        }
        file = day.site.folder / "input.json"
        file.write_text(json.dumps(document))
        shown = day.draft("eval", "--input", file, "--json")
        found = json.loads(shown.stdout)
        fired = {rule["line"] for rule in found["rules"] if rule["file"] == RULES}
        answers[amount] = found["result"]["effect"], day.line(RULES, '"code": "GIFT_CARD"') in fired
    assert answers == {"50.00": ("require_approval", False), "50.01": ("deny", True)}


def sees_which_refunds_would_have_changed(day: Desk, calls: dict[str, str]) -> None:
    """Exactly those above the limit; the one that ran would have been stopped twice."""
    code, found = day.document("diff", "recorded", day.library)
    assert code == 6
    assert {row["execution_id"] for row in found["changed"]} >= {calls["GIFT-2"], calls["GIFT-4"]}
    mine = [
        (row["execution_id"], row["entrypoint"].split("/")[1])
        for row in found["changed"]
        if row["execution_id"] in calls.values()
    ]
    assert mine == [
        (calls["GIFT-2"], "decision"),
        (calls["GIFT-4"], "decision"),
        (calls["GIFT-4"], "preconditions"),
    ]
    others = len(found["changed"]) - len(mine)
    assert others == len(breakages(day.engine))  # what the old limit let through while each broken one was refused
    assert found["decisions"]["not_replayable"] == 0


def brings_it_into_force(day: Desk) -> None:
    """Built and signed by OPA, asked for, on record with its signer, and shown."""
    before = standing.read(day.site.data)
    assert before is not None
    unsigned = day.policy("check", day.library)
    assert (unsigned.exit_code, "nobody signed this bundle; sign it with" in unsigned.stderr) == (1, True)
    day.build("v2")
    assert day.policy("check", day.archive).exit_code == 0
    code, found = day.document("reload")
    assert (code, found["signer"], found["engine"]) == (0, RELEASE.id, day.engine)
    assert found["revision"] != before.revision
    (_, activation) = day.records("policy.activated")
    assert (activation["signer"], activation["bundle_revision"]) == (RELEASE.id, "v2")
    assert activation["revision"] == found["revision"]
    status = day.policy("status")
    assert status.exit_code == 0
    assert f"in force: {found['revision']} since" in status.stdout
    assert f"signed by {RELEASE.id}" in status.stdout


def sees_it_decide(day: Desk) -> None:
    """A real call on each side."""
    denied = asks(day, "GIFT-8", "50.01")
    assert isinstance(denied, Denied)
    assert "GIFT_CARD" in json.dumps(day.records("execution.proposed")[-1])
    assert not isinstance(asks(day, "GIFT-9", "50.00"), Denied)


def asks(day: Desk, order: str, amount: str) -> Answer:
    with day.site.client() as agent:
        return agent.execute(refund(order, amount, key=order))
