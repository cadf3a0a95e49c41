"""``tool.errors``: what is refused at load, and what a contract without it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kblockd.domain.contract import InvalidContract, parse, parse_stored
from kblockd.domain.contract.fault import dotted
from tests.harness import refund_contract

BODY = {"in": "body", "media_type": "application/problem+json", "has": "/code"}
RPC = {"in": "rpc_error", "has": "/data/code"}


def faults(errors: Any, *, effect_free: bool = False) -> list[str]:
    with pytest.raises(InvalidContract) as refused:
        parse(refund_contract({"tool": {"errors": errors, "errors_are_effect_free": effect_free}}))
    return [dotted(fault.path) for fault in refused.value.faults]


def test_ups_04_effect_free_without_a_shape_is_refused_and_the_key_is_named() -> None:
    """Any gateway could prove an absence."""
    assert faults(None, effect_free=True) == ["tool.errors_are_effect_free"]


@pytest.mark.parametrize("status", [*range(500, 600), 407, 408, 100, 200, 302, 399, 600, 0])
@pytest.mark.parametrize("key", ["rejected_before_work", "in_progress"])
def test_ups_05_only_a_4xx_is_taken(status: int, key: str) -> None:
    """520 to 599 as well; and neither the proxy's own 407 nor a time-out."""
    assert faults({**BODY, key: [422, status]}) == [f"tool.errors.{key}[1]"]


@pytest.mark.parametrize("code", [-32603, -32700, -32000, -32001])
def test_ups_05_nor_a_code_of_json_rpc_that_means_as_little(code: int) -> None:
    """Crashed, unreadable, closed, timed out."""
    assert faults({**RPC, "rejected_before_work": [code]}) == ["tool.errors.rejected_before_work[0]"]


@pytest.mark.parametrize(
    ("errors", "where"),
    [
        ({"in": "body", "media_type": "application/json"}, "tool.errors"),
        ({"in": "body", "has": "/code"}, "tool.errors.media_type"),
        ({**BODY, "media_type": "application/json; charset=utf-8"}, "tool.errors.media_type"),
        ({**BODY, "media_type": "JSON"}, "tool.errors.media_type"),
        ({**RPC, "media_type": "application/json"}, "tool.errors.media_type"),
        ({**BODY, "has": ""}, "tool.errors.has"),
        ({**BODY, "has": "code"}, "tool.errors.has"),
        ({**BODY, "in": "page"}, "tool.errors.in"),
        ({**BODY, "schema": {"type": "object", "requird": []}}, "tool.errors.schema.requird"),
        ({**BODY, "rejected_before_work": [-32602]}, "tool.errors.rejected_before_work[0]"),
        ({**BODY, "rejected_before_work": ["closed"]}, "tool.errors.rejected_before_work[0]"),
        ({**BODY, "rejected_before_work": [409], "in_progress": [409]}, "tool.errors.in_progress[0]"),
        ({"in": "tool_result", "has": "/code", "rejected_before_work": [422]}, "tool.errors.rejected_before_work[0]"),
        ({**BODY, "statuses": [409]}, "tool.errors.statuses"),
    ],
)
def test_what_could_never_be_compared_is_refused(errors: dict[str, Any], where: str) -> None:
    """A switch that silently does nothing is a defect."""
    assert faults(errors) == [where]


def test_upg_03_a_contract_without_the_key_has_the_digest_that_it_had() -> None:
    """An optional key that is not used changes neither approvals nor recorded inputs of policy."""
    plain, null = parse(refund_contract()), parse(refund_contract({"tool": {"errors": None}}))
    assert "errors" not in plain.document["tool"]
    assert plain.sha256 == null.sha256


def test_upg_02_what_an_older_version_stored_is_still_read() -> None:
    """And only that: what no version took is refused in a ledger as well."""
    old = refund_contract({"tool": {"errors_are_effect_free": True}})
    stored = parse_stored(old)
    assert parse_stored(json.loads(json.dumps(stored.document))).sha256 == stored.sha256
    with pytest.raises(InvalidContract):
        parse_stored(refund_contract({"tool": {"errors": {**BODY, "rejected_before_work": [500]}}}))


def test_a_declared_shape_survives_the_ledger() -> None:
    """Every key with its effective value."""
    errors = {**BODY, "code": "/code", "rejected_before_work": [422, "no_funds"], "in_progress": [409]}
    made = parse(refund_contract({"tool": {"errors": errors, "errors_are_effect_free": True}}))
    assert parse_stored(json.loads(json.dumps(made.document))).sha256 == made.sha256
    assert made.document["tool"]["errors"] == {**errors, "schema": None}
