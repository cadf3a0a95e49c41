"""What a server promises of its answers is checked within bounds, whatever it promises."""

from __future__ import annotations

from typing import Any

import pytest

from kblockd.domain.contract.promise import STEPS, TooCostly, keeps
from tests.unit.domain.schemas import doubling

DONE = {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}


def doubled(levels: int) -> dict[str, Any]:
    """Nothing but the first of such definitions."""
    return {"$ref": "#/$defs/a0", "$defs": doubling(levels, DONE)}


def test_a_promise_is_kept_or_not() -> None:
    assert keeps(DONE, {"done": True})
    assert not keeps(DONE, {"done": "yes"})
    assert not keeps(DONE, {})
    assert keeps(doubled(4), {"done": True})
    assert not keeps(doubled(4), {"done": 1})


def test_rows_as_tools_answer_them_are_within_the_bounds() -> None:
    row = {"type": "object", "properties": {name: {"type": "string"} for name in "abcdef"}, "required": list("abcdef")}
    assert keeps({"type": "array", "items": row}, [dict.fromkeys("abcdef", "text")] * 1000)


COSTLY: dict[str, tuple[dict[str, Any], Any]] = {
    "doubled definitions": (doubled(30), {"done": True}),
    "a definition of itself": ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, DONE]}}}, {}),
    "too many unique items": ({"uniqueItems": True}, [{"n": n} for n in range(100_000)]),
    "a large array": ({"items": {"type": "integer"}}, list(range(1_000_000))),
    "many names for each item": ({"items": {"enum": [f"name-{n}" for n in range(10_000)]}}, ["name-9999"] * 10_000),
    "many patterns on a long text": ({"allOf": [{"pattern": f"(x|{n})$"} for n in range(1000)]}, "x" * 1_000_000),
    "unevaluated": ({"unevaluatedProperties": False}, {"a": 1}),
    "a dynamic reference": ({"$dynamicRef": "#meta"}, {}),
}


@pytest.mark.parametrize(("schema", "value"), COSTLY.values(), ids=COSTLY.keys())
def test_what_costs_more_is_refused(schema: dict[str, Any], value: Any) -> None:
    """Within the test's time, where each of them would take minutes or for ever."""
    with pytest.raises((TooCostly, RecursionError)):
        keeps(schema, value)


def test_the_bound_counts_for_each_check_anew() -> None:
    schema = {"items": {"type": "integer"}}
    numbers = list(range(STEPS // 2))
    assert keeps(schema, numbers)
    assert keeps(schema, numbers)
    with pytest.raises(TooCostly):
        keeps(schema, numbers, steps=100)
