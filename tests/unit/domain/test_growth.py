"""Foreign input costs in proportion to its bytes, whatever is doubled (AGT-01, AGT-03, UPS-17, LOC-06)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kblockd.approvals.quoting import quote, warnings
from kblockd.domain import canonical, pointer
from kblockd.domain.contract.promise import keeps
from kblockd.policy.bundles import documents
from kblockd.rpc import convert
from kblockd.upstream.adapter import Outcome, Sent
from kblockd.upstream.outcomes import storable
from kblockd.upstream.scrub import Scrubber
from tests.unit.domain.steps import cost
from tests.unit.rpc.test_convert import minimal

WIDE = "\U0001f600"
SCRUBBER = Scrubber(b"Bearer 0123456789abcdef")

Shape = Callable[[int], Any]
SHAPES: dict[str, Shape] = {
    "members": lambda n: {f"k{i}": i for i in range(n)},
    "items": lambda n: {"a": [1.5, True, None, "x"] * (n // 4)},
    "containers": lambda n: {"a": [{}] * n},
    "a long text": lambda n: {"a": "x" * 60 * n},
    "a long key": lambda n: {"k" * 120 * n: 1},
    "a long key over members": lambda n: {"k" * 120 * n: {f"k{i}": i for i in range(n)}},
    "a long key over items": lambda n: {"k" * 120 * n: ["x"] * n},
    "a long wide key over members": lambda n: {WIDE * 30 * n: {f"k{i}": i for i in range(n)}},
    "long keys over each other": lambda n: nested(24, "k" * 10 * n, ["x"] * n),
    "wide texts": lambda n: {"a": [f"{WIDE}{i}" for i in range(n)]},
    "wide keys": lambda n: {f"{WIDE}{i}": i for i in range(n)},
    "strange texts under a long key": lambda n: {WIDE * 30 * n: [f"\u202e{i}" for i in range(n)]},
    "escapes": lambda n: {"a": '\\"' * 10 * n},
    "combining marks": lambda n: {"a": "a" + "\u0315\u0300" * 5 * n},
    "floats": lambda n: {"a": [i + 0.5 for i in range(n)]},
}


def nested(levels: int, key: str, inner: Any) -> Any:
    """``inner`` below that many objects."""
    for _ in range(levels):
        inner = {key: inner}
    return inner


def text(value: Any) -> bytes:
    """As a client writes it."""
    return json.dumps(value, ensure_ascii=False).encode()


def faulty(value: Any) -> bytes:
    """With a fault behind everything else, so that its place must be found."""
    return text({"all": value}).removesuffix(b"}") + b',"last":{"\\ud800":1}}'


WORK: dict[str, Callable[[Any], Callable[[], object]]] = {
    "parse": lambda value: partial(canonical.parse, text(value)),
    "parse with a fault": lambda value: partial(canonical.parse, faulty(value)),
    "check": lambda value: partial(canonical.check, value),
    "check with a fault": lambda value: partial(canonical.check, [value, {"last": float("nan")}]),
    "canonical": lambda value: partial(canonical.canonical, value),
    "reparse": lambda value: partial(canonical.reparse, canonical.canonical(value)),
    "unnormalized": lambda value: partial(canonical.unnormalized, value),
    "texts": lambda value: lambda: sum(1 for _ in pointer.texts(value)),
    "warnings": lambda value: partial(warnings, value),
    "quote": lambda value: partial(quote, value),
    "storable": lambda value: partial(storable, Outcome(Sent.ANSWERED, value), SCRUBBER, 1 << 20),
    "documents": lambda value: partial(documents.parsed, {"data.json": text(value)}, signed=True),
    "preconditions": lambda value: partial(convert.envelope, conditions(value)),
    "promise": lambda value: partial(keeps, {"type": "object", "additionalProperties": {"type": "array"}}, value),
}


def conditions(value: Any) -> Any:
    """An envelope that carries it."""
    message = minimal()
    message.preconditions_json = text(value)
    return message


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", WORK)
def test_agt_01_what_is_doubled_costs_twice(work: str, shape: str) -> None:
    """Instructions and bytes allocated, for twice as much along each dimension; a square would be four times."""
    make, do = SHAPES[shape], WORK[work]
    once, twice = cost(do(make(80))), cost(do(make(160)))
    assert twice.instructions <= 2.3 * once.instructions + 500
    assert twice.allocated <= 2.3 * once.allocated + 20_000


@pytest.mark.parametrize("work", WORK)
def test_depth_that_is_doubled_costs_twice(work: str) -> None:
    """Each level has its key and its members."""

    def deep(levels: int) -> Any:
        value: Any = "x\u202e"
        for _ in range(levels):
            value = {"k" * 200: value, **{f"m{i}": i for i in range(20)}}
        return value

    once, twice = cost(WORK[work](deep(14))), cost(WORK[work](deep(28)))
    assert twice.instructions <= 2.3 * once.instructions + 500
    assert twice.allocated <= 2.3 * once.allocated + 20_000


@pytest.mark.parametrize("work", WORK)
def test_wider_characters_cost_what_their_bytes_cost(work: str) -> None:
    """Python keeps a text four times as wide as soon as one character needs it: never once for each member."""
    costs = [cost(WORK[work]({c * 2000: [f"{c}{i}" for i in range(100)]})) for c in ("a", "é", "漢", WIDE)]
    for narrow, wide in itertools.pairwise(costs):
        assert wide.allocated <= 4.6 * narrow.allocated + 100_000
    assert costs[3].instructions <= 1.2 * costs[1].instructions + 500
