"""What a server promises of its answers is checked within bounds, whatever it promises."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kblockd.domain.contract.promise import SECONDS, STEPS, TooCostly, keeps
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


OURS = "https://json-schema.org/draft/2020-12/schema"
LATER: dict[str, tuple[dict[str, Any], Any]] = {
    "keywords that are none": ({"items": {f"x{n}": 0 for n in range(2000)}}, [0] * 300_000),
    "nothing for each item": ({"items": {}}, [0] * 300_000),
    "nothing, often": ({"items": {"allOf": [{}] * 1600}}, [0] * 190),
    "an anchor": ({"$defs": {"a": {"$anchor": "a"}}, "items": {"$ref": "#a"}}, [0]),
    "an identifier": ({"$id": "http://x/", "$defs": {"a": {"$id": "http://x/a"}}, "items": {"$ref": "a"}}, [0]),
    "a name of its own": ({"$defs": {"a": {"$id": "http://x/a"}}, "items": {"$ref": "#/$defs/a"}}, [0]),
}


@pytest.mark.parametrize(("schema", "value"), LATER.values(), ids=LATER.keys())
def test_what_no_keyword_counts_is_refused(schema: dict[str, Any], value: Any) -> None:
    with pytest.raises(TooCostly):
        keeps(schema, value)


@pytest.mark.parametrize("dialect", [OURS, "http://json-schema.org/draft-07/schema#"])
def test_a_dialect_inside_changes_no_rule(dialect: str) -> None:
    schema = {"properties": {"a": {"$schema": dialect, "pattern": "^(a+)+$"}}}
    assert not keeps(schema, {"a": "a" * 64 + "!"})
    assert not keeps(
        {"$schema": dialect, "properties": {"a": {"$ref": "#"}}, "pattern": "^(a+)+$"}, {"a": "a" * 64 + "!"}
    )


NO_STEPS: dict[str, tuple[dict[str, Any], Any]] = {
    "names of names": (
        {"items": {"anyOf": [{"dependentRequired": {"a": [f"n{n}" for n in range(20_000)]}}, {}]}},
        [{"a": 0}] * 1000,
    ),
    "faults in words": ({"allOf": [{"anyOf": [{"type": "string"}, {}]}] * 3000}, [[0] * 300_000]),
}


@pytest.mark.parametrize(("schema", "value"), NO_STEPS.values(), ids=NO_STEPS.keys())
def test_what_no_step_counts_ends_in_time(schema: dict[str, Any], value: Any) -> None:
    with pytest.raises(TooCostly):
        keeps(schema, value)


def test_what_takes_too_long_is_given_up_whatever_its_steps() -> None:
    """By the clock that is passed in: it is looked at with every step."""
    ticks = iter(range(100))
    with pytest.raises(TooCostly):
        keeps({"items": {"type": "integer"}}, [1, 2, 3], clock=lambda: float(next(ticks)))
    assert keeps({"items": {"type": "integer"}}, [1, 2, 3], clock=lambda: 0.0)


def test_what_waits_for_the_machine_is_not_given_up() -> None:
    """Its own work alone counts: a busy machine must not turn an answer that keeps its promise into none."""

    class Waiting(list[int]):
        def __len__(self) -> int:
            time.sleep(SECONDS * 1.1)
            return super().__len__()

    assert keeps({"items": {"type": "integer"}}, Waiting([1, 2, 3]))
