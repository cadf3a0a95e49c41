"""The schema of the input is what the daemon really asks about: no key too many, none too few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from kblockd.authoring.reviewer import schema_text
from kblockd.domain.contract.errors import ToolErrors
from kblockd.domain.principal import Principal
from kblockd.execution import envelopes
from kblockd.policy.deciding import inputs
from kblockd.policy.deciding.samples import SAMPLES
from tests.unit.execution.test_envelopes import CONTRACT, FULL
from tests.unit.policy import make_input_schema
from tests.unit.policy.test_shipped import refund
from tests.unit.policy_library.examples import EXAMPLES, contract

SCHEMA = json.loads(schema_text())
APPROVAL = refund()["approval"]
ERRORS = ToolErrors.model_validate({"in": "body", "media_type": "application/json", "has": "/code"}).model_dump(
    mode="json", by_alias=True
)
WHOLE = CONTRACT.model_dump(mode="json", by_alias=True)
ASKED = inputs.document(
    inputs.subject(
        operation="payment.refund.create",
        risk_tier="high",
        environment="production",
        tool="refund",
        tool_version="",
        target={"type": "order", "id": "A-1"},
        intent={"any": [1]},
        action_sha256="0" * 64,
        envelope=envelopes.document(FULL),
        args={"amount": "1.00"},
        contract={**WHOLE, "tool": {**WHOLE["tool"], "errors": ERRORS}},
        contract_sha256=CONTRACT.sha256,
        upstream="payments",
        origin="http://127.0.0.1:1",
        definition_sha256="1" * 64,
    ),
    now="2026-11-29T10:00:00.000000Z",
    principal=Principal("local:agent", "agent", "acme", "team:bot", ("a",)).document(),
    approval=APPROVAL,
    snapshot={"any": 1},
    read=[1],
    outcome={
        "class": "unknown_outcome",
        "code": "",
        "attempts": 1,
        "maximum_attempts": 2,
        "marker": True,
        "irreversible": False,
        "output": None,
        "effect_key": "k",
    },
    finding={"finding": "absent", "verdict": ""},
)


def test_the_file_is_what_its_maker_makes() -> None:
    """The contract's part follows its model: a new key of a contract needs the maker to run again."""
    assert make_input_schema.OUT.read_text() == make_input_schema.text()
    assert json.loads(make_input_schema.text()) == SCHEMA


def test_an_input_as_the_daemon_puts_it_together_fits() -> None:
    Draft7Validator.check_schema(SCHEMA)
    plain = {**ASKED, "contract": CONTRACT.document}  # without tool.errors and numbers
    for asked in (ASKED, plain):
        assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(asked)] == []


@pytest.mark.parametrize("operation", EXAMPLES)
def test_the_contract_of_each_worked_example_fits(operation: str) -> None:
    asked = {**ASKED, "contract": contract(operation).document}
    assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(asked)] == []


def closed(schema: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of every key that the schema lists."""
    for each in schema.get("anyOf", [schema]):
        for name, below in (each.get("properties") or {}).items():
            yield (*at, name)
            yield from closed(below, (*at, name))
        if "items" in each:
            yield from closed(each["items"], (*at, "0"))


def test_every_key_of_the_schema_is_in_an_input() -> None:
    """A key that no input has would let a reference to it pass, which is undefined for ever."""
    assert [path for path in closed(SCHEMA) if not present(ASKED, path)] == []


def present(node: Any, path: tuple[str, ...]) -> bool:
    """Whether a value stands there; null where nothing is known yet."""
    for part in path:
        if node is None:
            return True
        if isinstance(node, dict) and part not in node:
            return False
        node = node[int(part)] if isinstance(node, list) else node[part]
    return True


@pytest.mark.parametrize("sample", [json.loads(each) for each in SAMPLES], ids=["bare", "full"])
def test_the_samples_of_the_probes_have_the_same_keys_at_the_top(sample: dict[str, Any]) -> None:
    assert set(sample) == set(SCHEMA["properties"])
    assert set(sample["action"]) == set(SCHEMA["properties"]["action"]["properties"])
