"""What must hold between the keys of a contract; every fault names its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kblockd.config import document
from kblockd.domain import contract as contracts

SHIPPED = Path(__file__).parents[3] / "config/actions/payment.refund.create.yaml"
Change = Callable[[dict[str, Any]], object]


def shipped() -> dict[str, Any]:
    value: dict[str, Any] = document.read(SHIPPED).value
    return value


def faults(change: Change) -> dict[str, str]:
    changed = shipped()
    change(changed)
    try:
        contracts.parse(changed)
    except contracts.InvalidContract as error:
        return {contracts.dotted(fault.path): fault.message for fault in error.faults}
    return {}


def part(section: str, **changes: Any) -> Change:
    return lambda d: d[section].update(changes)


def unverifiable(d: dict[str, Any]) -> None:
    d["reads"]["verify"] = d["verification"]["authoritative_read_tool"] = None


def twice_by_hand(d: dict[str, Any]) -> None:
    d["execution"]["maximum_attempts"] = 2
    d["recovery"]["transient_failure"] = "manual"


def nested_pointer(d: dict[str, Any]) -> None:
    d["reads"]["verify"]["arguments"]["k"] = [1, {"x": "/args/x"}]


CASES: list[tuple[str, str, Change]] = [
    ("tool.effect_key.name", "reverse-DNS", lambda d: d["tool"]["effect_key"].update(name="key")),
    ("tool.effect_key.name", "header", lambda d: d["tool"].update(effect_key={"in": "header", "name": "Host"})),
    ("tool.effect_key.name", "header", lambda d: d["tool"].update(effect_key={"in": "header", "name": "a b"})),
    ("tool.effect_key.name", "missing", lambda d: d["tool"].update(effect_key={"in": "argument"})),
    ("tool.effect_key.name", "callers", lambda d: d["tool"].update(effect_key={"in": "argument", "name": "order_id"})),
    ("tool.effect_key.name", "not sent", lambda d: d["tool"]["effect_key"].update({"in": "none"})),
    ("idempotency_scope", "does not fit", lambda d: d.update(idempotency_scope="none")),
    ("lookup[0].by", "never sees", lambda d: d["tool"].update(effect_key={"in": "none"})),
    ("lookup[0].arguments.key", "never sees", lambda d: d["tool"].update(effect_key={"in": "none"})),
    ("lookup[0].arguments", "/effect_key", lambda d: d["lookup"][0].update(arguments={"key": "x"})),
    ("lookup[0].arguments", "/operation", lambda d: d["lookup"][0].update(by="operation")),
    ("lookup[0].arguments.id", "nowhere", lambda d: d["lookup"][0]["arguments"].update(id="/output/id")),
    ("lookup[0].absent_final_after_seconds", "lag", lambda d: d["lookup"][0].update(consistent="eventual")),
    ("lookup[0].tool", "no read", lambda d: d["lookup"][0].update(tool="refund")),
    ("lookup[0].kind", "read", lambda d: d["lookup"][0].update(kind="write")),
    ("lookup[0].present", "pointer", lambda d: d["lookup"][0].update(present="found")),
    ("lookup[0].present", "at least 1", lambda d: d["lookup"][0].update(present="")),
    ("reads.snapshot.tool", "no read", lambda d: d["reads"]["snapshot"].update(tool="refund")),
    ("reads.verify.tool", "no read", lambda d: d["reads"]["verify"].update(tool="refund")),
    ("reads.snapshot.arguments.k", "nowhere", lambda d: d["reads"]["snapshot"]["arguments"].update(k="/effect_key")),
    ("reads.verify.arguments.k", "nowhere", lambda d: d["reads"]["verify"]["arguments"].update(k="/arg/x")),
    ("reads.verify.arguments.k[1].x", "no /args/x", nested_pointer),
    ("reads.verify.arguments.k", "is a string", lambda d: d["reads"]["verify"]["arguments"].update(k="/operation/id")),
    ("reads.verify.arguments.k", "~0", lambda d: d["reads"]["verify"]["arguments"].update(k="/args/a~b")),
    ("target.id", "no /args/id", lambda d: d["target"].update(id="/args/id")),
    ("target.id", "nowhere", lambda d: d["target"].update(id="/output/id")),
    ("intent.order", "no /args/ordr", lambda d: d["intent"].update(order="/args/ordr")),
    ("intent.order", "nowhere", lambda d: d["intent"].update(order="/execution_id")),
    ("verification.expected.amount", "no /args/x", lambda d: d["verification"]["expected"].update(amount="/args/x")),
    ("preconditions.x", "nowhere", lambda d: d["preconditions"].update(x="/snap/x")),
    ("reveal[0]", "nowhere", lambda d: d["reveal"].insert(0, "/args/order_id")),
    ("summary", "{intent.ordr} is not known", lambda d: d.update(summary="Refund {intent.ordr}")),
    ("summary", "brace", lambda d: d.update(summary="Refund {intent.order")),
    ("summary", "is not known", lambda d: d.update(summary="Refund {args.order_id}")),
    ("summary", "is not known", lambda d: (d.pop("intent"), d.update(summary="Refund {intent.ordr}"))),
    ("verification.authoritative_read_tool", "differs", part("verification", authoritative_read_tool="get_order")),
    ("verification.required", "nothing is read", unverifiable),
    ("verification.expected", "no post-condition", part("verification", expected={})),
    ("verification.poll_interval_seconds", "longer", part("verification", poll_interval_seconds=181)),
    ("verification.consistency_delay_seconds", "longer", part("verification", consistency_delay_seconds=181)),
    ("execution.request_timeout_seconds", "longer", part("execution", request_timeout_seconds=301)),
    ("execution.maximum_attempts", "never comes", twice_by_hand),
    ("side_effects", "at least 1", lambda d: d.update(side_effects=[])),
    ("tool.arguments_schema.requird", "does not check", lambda d: d["tool"]["arguments_schema"].update(requird=[])),
    ("tool.arguments_schema", "object", lambda d: d["tool"]["arguments_schema"].pop("type")),
]  # fmt: skip


@pytest.mark.parametrize(("key", "words", "change"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_a_contradiction_is_refused_at_its_key(key: str, words: str, change: Change) -> None:
    """R046 to R059, C9."""
    found = faults(change)
    assert words in found[key]


def test_all_faults_are_told_at_once() -> None:
    def change(d: dict[str, Any]) -> None:
        d["tool"]["knd"] = "write"
        d["execution"]["request_timeout_seconds"] = "30s"
        del d["summary"]
        d["emergency"]["tool_kill_switch"] = True

    assert set(faults(change)) == {
        "tool.knd",
        "execution.request_timeout_seconds",
        "summary",
        "emergency.tool_kill_switch",
    }


def test_the_next_step_names_the_right_key_and_unit() -> None:
    changed = shipped()
    changed["execution"]["request_timeout_ms"] = changed["execution"].pop("request_timeout_seconds")
    changed["verification"]["pol_interval_seconds"] = 10
    changed["verification"]["maximum_duration_seconds"] = "3 minutes"
    with pytest.raises(contracts.InvalidContract) as caught:
        contracts.parse(changed)
    steps = {contracts.dotted(fault.path): fault.next_step for fault in caught.value.faults}
    assert "request_timeout_seconds" in steps["execution.request_timeout_ms"]
    assert "poll_interval_seconds" in steps["verification.pol_interval_seconds"]
    assert "number of seconds" in steps["verification.maximum_duration_seconds"]


def test_a_target_that_cannot_be_read_or_verified_can_be_declared() -> None:
    """R044, R260: less proof is possible, but has to be written down."""

    def change(d: dict[str, Any]) -> None:
        d["reads"] = {"snapshot": None, "verify": None}
        d["preflight"]["require_current_resource_version"] = False
        d["verification"].update(required=False, authoritative_read_tool=None)
        d["tool"]["effect_key"] = {"in": "none"}
        d.update(idempotency_scope="none", lookup=[])

    assert faults(change) == {}


def test_bool_and_int_are_never_taken_for_each_other() -> None:
    assert "execution.maximum_attempts" in faults(lambda d: d["execution"].update(maximum_attempts=True))
    assert "verification.required" in faults(lambda d: d["verification"].update(required=1))
    assert "evidence.capture_raw_credentials" in faults(lambda d: d["evidence"].update(capture_raw_credentials=0))
    assert "version" in faults(lambda d: d.update(version=5.0))
