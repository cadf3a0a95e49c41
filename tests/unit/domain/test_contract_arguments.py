"""The schema of the arguments: draft 2020-12, RE2, bounded, and nothing in it is ignored."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import pytest

from kblockd.config import document
from kblockd.domain import contract as contracts
from kblockd.domain.contract.arguments import MAX_VIOLATIONS, ArgumentsValidator, faults
from kblockd.domain.contract.steps import STEPS
from kblockd.domain.errors import InvalidArgument
from tests.unit.domain.schemas import doubling

SHIPPED: dict[str, Any] = document.read(Path(__file__).parents[3] / "config/actions/payment.refund.create.yaml").value
GOOD = {"order_id": "O-1", "amount": "250.00", "currency": "EUR"}


def violations(args: dict[str, Any]) -> dict[str, str]:
    found = contracts.validate_arguments(contracts.parse(copy.deepcopy(SHIPPED)), args)
    return {violation.field: violation.description for violation in found}


def refused(schema: dict[str, Any]) -> dict[str, str]:
    return {contracts.dotted(fault.path): fault.message for fault in faults({"type": "object", **schema}, ("s",))}


def test_the_arguments_of_the_page_are_allowed() -> None:
    """R048, R070."""
    assert violations(GOOD) == {}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount": 250}, "envelope.arguments_json/amount"),
        ({"amount": "250.0"}, "envelope.arguments_json/amount"),
        ({"amount": "250.00\n"}, "envelope.arguments_json/amount"),
        ({"amount": "٢٥٠.٠٠"}, "envelope.arguments_json/amount"),
        ({"memo": "x"}, "envelope.arguments_json/memo"),
        ({"a/b~c": "x"}, "envelope.arguments_json/a~1b~0c"),
    ],
)
def test_a_wrong_argument_is_named_by_its_pointer(change: dict[str, Any], field: str) -> None:
    """R048. A line break after the amount passes Python's re, and must not pass here."""
    assert list(violations({**GOOD, **change})) == [field]


def test_every_wrong_argument_is_named_and_no_value_is_repeated() -> None:
    found = violations({"order_id": "s3cret" * 20, "amount": "s3cret", "x": 1})
    assert set(found) == {
        "envelope.arguments_json",
        "envelope.arguments_json/order_id",
        "envelope.arguments_json/amount",
        "envelope.arguments_json/x",
    }
    assert "currency" in found["envelope.arguments_json"]
    assert "s3cret" not in str(found)


def test_violations_are_bounded() -> None:
    schema = ArgumentsValidator({"type": "object", "additionalProperties": False})
    assert len(schema.violations({str(n): n for n in range(1000)})) == MAX_VIOLATIONS


def test_wrong_arguments_raise_with_their_violations() -> None:
    contract = contracts.parse(copy.deepcopy(SHIPPED))
    contracts.check_arguments(contract, GOOD)
    with pytest.raises(InvalidArgument) as caught:
        contracts.check_arguments(contract, {**GOOD, "amount": 1, "currency": "euro"})
    assert len(caught.value.violations) == 2
    assert "Nothing was executed" in caught.value.message


def test_a_callers_value_is_never_the_effect_key() -> None:
    """C9, R726: the argument that carries the key is the daemon's, even where the schema is open."""
    changed = copy.deepcopy(SHIPPED)
    changed["tool"]["effect_key"] = {"in": "argument", "name": "dedup"}
    changed["tool"]["arguments_schema"]["additionalProperties"] = True
    contract = contracts.parse(changed)
    found = contracts.validate_arguments(contract, {**GOOD, "dedup": "mine"})
    assert [violation.field for violation in found] == ["envelope.arguments_json/dedup"]


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        ({"requird": ["a"]}, "s.requird"),
        ({"properties": {"a": {"typ": "string"}}}, "s.properties.a.typ"),
        ({"properties": {"a": {"default": 1}}}, "s.properties.a.default"),
        ({"unevaluatedProperties": False}, "s.unevaluatedProperties"),
        ({"$id": "https://example.com/s"}, "s.$id"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "s.$schema"),
        ({"properties": {"a": {"type": "strin"}}}, "s.properties.a.type"),
        ({"properties": {"a": {"format": "date-time"}}}, "s.properties.a.format"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "s.properties.a.pattern"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "s.properties.a.pattern"),
        ({"patternProperties": {"(": {}}}, "s.patternProperties.("),
        ({"allOf": [{}, {"pattern": "("}]}, "s.allOf[1].pattern"),
        ({"properties": {"a": {"$ref": "https://example.com/s"}}}, "s.properties.a.$ref"),
        ({"properties": {"a": {"$ref": "#"}}}, "s.properties.a.$ref"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "s.properties.a.$ref"),
        ({"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#/$defs/a"}}}, "s.$defs.a"),
        ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "s.properties.a.uniqueItems"),
    ],
)
def test_what_would_be_ignored_or_unbounded_is_refused(schema: dict[str, Any], key: str) -> None:
    """R048: a misspelt keyword lets everything through, a remote reference asks the network, recursion has no bound."""
    assert key in refused(schema)


def test_definitions_that_unfold_without_bound_are_refused_where_they_begin_to() -> None:
    """R048: the operator reads the key and what to do. A chain as long that uses each of them once is none."""
    schema = {"properties": {"n": {"$ref": "#/$defs/a0"}}, "$defs": doubling(30, {"type": "integer"})}
    document = {**SHIPPED, "tool": {**SHIPPED["tool"], "arguments_schema": {"type": "object", **schema}}}
    with pytest.raises(contracts.InvalidContract) as caught:
        contracts.parse(copy.deepcopy(document))
    assert f"tool.arguments_schema.$defs.a17: unfolds to 32765 subschemas, at most {STEPS}" in str(caught.value)
    assert "refer to a definition less often" in str(caught.value)
    chain = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}]} for level in range(30)}
    assert refused({**schema, "$defs": {**chain, "a30": {"type": "integer"}}}) == {}


def test_what_the_schema_itself_unfolds_counts_too() -> None:
    definitions = doubling(12, {"type": "integer"})
    properties = {name: {"$ref": "#/$defs/a0"} for name in "ab"}
    assert refused({"properties": {"a": properties["a"]}, "$defs": definitions}) == {}
    assert list(refused({"properties": properties, "$defs": definitions})) == ["s"]


LIST: dict[str, Any] = {"type": "array", "maxItems": 1000, "uniqueItems": True}
PATTERNS: dict[str, Any] = {f"^x{n}": {} for n in range(50)}
COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "many items": ({"items": {"type": "integer"}}, list(range(100_000))),
    "many names for each item": ({"items": {"enum": [f"name-{n}" for n in range(2000)]}}, ["name-1999"] * 20_000),
    "many patterns for each name": ({"patternProperties": PATTERNS}, {f"name-{n}": n for n in range(20_000)}),
    "as many for those that match none": (
        {"patternProperties": PATTERNS, "additionalProperties": {}},
        {f"name-{n}": n for n in range(1200)},
    ),
    "many patterns on a long text": ({"allOf": [{"pattern": f"(x|{n})$"} for n in range(500)]}, "x" * 200_000),
    "many unique items": (LIST, [{"n": n} for n in range(50_000)]),
    "large unique items": (LIST, [[[n]] * 100 for n in range(1000)]),
}


@pytest.mark.parametrize(("schema", "value"), COSTLY.values(), ids=COSTLY.keys())
def test_arguments_that_cost_too_much_to_check_are_refused(schema: dict[str, Any], value: Any) -> None:
    """R048: within the test's time, where each would hold the loop for seconds or minutes. Nothing of them is checked,
    so nothing of them is allowed."""
    assert refused({"properties": {"a": schema}}) == {}
    (found,) = ArgumentsValidator({"type": "object", "properties": {"a": schema}}).violations({"a": value})
    assert found.field == "envelope.arguments_json"
    assert found.description == f"take more than {STEPS} steps to check; send fewer or shorter lists"


def test_large_arguments_that_cost_little_are_allowed() -> None:
    """Each check has all the steps."""
    row = {"type": "object", "properties": {name: {"type": "string", "maxLength": 9} for name in "abc"}}
    schema = {"properties": {"text": {"type": "string"}, "rows": {"type": "array", "maxItems": 1000, "items": row}}}
    validator = ArgumentsValidator({"type": "object", **schema})
    for _ in range(3):
        assert validator.violations({"text": "x" * 500_000, "rows": [dict.fromkeys("abc", "text")] * 1000}) == ()


@pytest.mark.parametrize(
    ("items", "equal"),
    [
        ([1, True, 0, False, "1", None, [], {}, [1], [True], {"a": 1}, {"a": True}], False),
        ([["boolean", 1], True, ["list"], []], False),
        ([1, 1.0], True),
        ([{"a": [1], "b": 2}, {"b": 2, "a": [1.0]}], True),
        ([{"n": n} for n in range(1000)], False),
    ],
)
def test_items_are_equal_as_json_says(items: list[Any], equal: bool) -> None:
    """And a thousand of them are compared in the time of a thousand, not of half a million."""
    found = ArgumentsValidator({"type": "object", "properties": {"a": LIST}}).violations({"a": items})
    assert [violation.field for violation in found] == ["envelope.arguments_json/a"] * equal


def test_a_schema_of_another_type_than_object_is_refused() -> None:
    assert faults({"type": "string"}, ("s",))
    assert faults({}, ("s",))


def test_definitions_are_used() -> None:
    schema = {
        "type": "object",
        "$defs": {"id": {"type": "string", "pattern": "^[a-z]+$"}},
        "properties": {"a": {"$ref": "#/$defs/id"}},
    }
    assert faults(schema, ()) == []
    assert ArgumentsValidator(schema).violations({"a": "ok"}) == ()
    assert ArgumentsValidator(schema).violations({"a": "NO"})


def test_names_by_pattern_are_matched_by_re2() -> None:
    schema = {
        "type": "object",
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    assert faults(schema, ()) == []
    validator = ArgumentsValidator(schema)
    assert validator.violations({"x-a": "text", "n": 1}) == ()
    assert {v.field for v in validator.violations({"x-a": 1, "n": "text"})} == {
        "envelope.arguments_json/x-a",
        "envelope.arguments_json/n",
    }


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-11-29", "2026-02-30"),
        ("email", "a@b.example", "a"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "::g"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    validator = ArgumentsValidator({"type": "object", "properties": {"a": {"format": name}}})
    assert validator.violations({"a": good}) == ()
    assert validator.violations({"a": bad})


def test_a_pattern_that_backtracks_stays_fast() -> None:
    """Exponential in ``re``: 60 characters would take longer than the universe has left."""
    validator = ArgumentsValidator({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}})
    start = time.monotonic()
    assert validator.violations({"a": "a" * 100_000 + "!"})
    assert time.monotonic() - start < 10


def test_a_dialect_that_a_subschema_names_changes_no_rule() -> None:
    """Bundlers leave ``$schema`` in definitions: the library would go on with its own validator there, whose ``$``
    matches before a line break and whose patterns backtrack."""
    amount = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string", "pattern": r"^\d+$"}
    schema = {"type": "object", "properties": {"amount": amount}}
    assert faults(schema, ()) == []
    assert ArgumentsValidator(schema).violations({"amount": "1"}) == ()
    [violation] = ArgumentsValidator(schema).violations({"amount": "1\n"})
    assert violation.field == "envelope.arguments_json/amount"
