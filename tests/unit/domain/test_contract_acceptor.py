"""The short way to yes never says it where the careful check says no."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kblockd.domain.contract import arguments
from kblockd.domain.contract.acceptor import LONGEST
from kblockd.domain.contract.arguments import ArgumentsValidator
from tests.unit.domain.test_contract_arguments import GOOD, SHIPPED

NAMES = st.sampled_from(["a", "b", "c", "é"])
SMALL = st.integers(0, 3)
WORDS = st.sampled_from(["", "a", "ab", "abc", "é", "12.50", "12.50\n", "٣", "A" * 5])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 1.0, 1.5, -0.5, 1e20, True, False])
VALUES = st.recursive(
    st.none() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def of(kind: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of a type with any of these keywords."""
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=keywords)


BOUNDS: dict[str, st.SearchStrategy[Any]] = {
    name: st.sampled_from([-1, 0, 1, 1.5, 2]) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
}
LEAVES = st.one_of(
    of("boolean"),
    of("null", title=st.just("nothing")),
    of("integer", **BOUNDS),
    of("number", **BOUNDS),
    of(
        "string",
        minLength=SMALL,
        maxLength=SMALL,
        enum=st.lists(WORDS | NUMBERS, min_size=1, max_size=3, unique_by=repr),
        const=WORDS | NUMBERS,
        pattern=st.sampled_from([r"^\d+\.\d{2}$", "a", "^.$", r"\w$"]),
    ),
    # What is not plain leaves the whole schema to the careful check.
    of("integer", multipleOf=st.just(2)),
    st.sampled_from([True, {}, {"type": ["string", "null"]}, {"anyOf": [{"type": "string"}]}]),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of objects."""
    return of(
        "object",
        properties=st.dictionaries(NAMES, inner, max_size=3),
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=st.booleans() | inner,
    )


NODES = st.recursive(
    LEAVES, lambda inner: objects(inner) | of("array", minItems=SMALL, maxItems=SMALL, items=inner), max_leaves=6
)


@settings(max_examples=500)
@given(objects(NODES), st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4))
def test_agt_01_what_it_accepts_the_careful_check_finds_nothing_in(schema: dict[str, Any], given_: list[Any]) -> None:
    validator = ArgumentsValidator(schema)
    accepts, validator._accepts = validator._accepts, None
    for value in given_:
        if accepts is not None and accepts(value):
            assert validator.violations(value) == ()


def test_it_says_yes_to_what_the_shipped_contract_is_for() -> None:
    """With patterns, on RE2."""
    validator = ArgumentsValidator(SHIPPED["tool"]["arguments_schema"])
    assert validator._accepts is not None
    assert validator._accepts(GOOD)
    for change in ({"amount": "250.00\n"}, {"amount": "٢٥٠.٠٠"}, {"amount": 250}, {"memo": "x"}):
        assert not validator._accepts({**GOOD, **change})


def test_the_careful_check_is_asked_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(arguments.Validator, "iter_errors", lambda _, value: asked.append(value) or iter(()))
    validator = ArgumentsValidator(SHIPPED["tool"]["arguments_schema"])
    validator.violations(GOOD)
    assert asked == []
    validator.violations({**GOOD, "amount": 1})
    assert len(asked) == 1


@pytest.mark.parametrize("value", [{"a": [["x"] * 50] * 200}, {"b": "x" * (LONGEST + 1)}])
def test_what_may_take_too_many_steps_is_left_to_the_careful_check(value: dict[str, Any]) -> None:
    rows = {"type": "array", "items": {"type": "array", "items": {"type": "string", "enum": ["x"] * 1000}}}
    schema = {"type": "object", "properties": {"a": rows, "b": {"type": "string"}}}
    validator = ArgumentsValidator(schema)
    assert validator._accepts is not None
    assert not validator._accepts(value)
