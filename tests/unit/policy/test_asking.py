"""The text of a question is the canonical form of its document, however it was put together."""

from __future__ import annotations

import copy
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.admission.offload import INLINE_BYTES
from kblockd.domain.canonical import NotCanonical, canonical
from kblockd.policy.deciding import entrypoints, evaluator, inputs
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.deciding.evaluator import Contracts, input_text
from tests.contract.policy.support import ALLOW, CountingIds, RealClock

NAMES = st.sampled_from(["v", "now", "args", "contract", "snapshot", "envelope", "é", "with space", '"'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


FOREIGN = VALUES | st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.floats(-1, 1), max_size=2)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_member_by_member_is_the_canonical_form(document: dict[str, Any]) -> None:
    try:
        expected = canonical(document)
    except NotCanonical:
        with pytest.raises(NotCanonical):
            input_text(document)
        return
    assert input_text(document) == expected
    assert input_text(document) == expected  # the contract's text is known now


@given(FOREIGN, FOREIGN, FOREIGN, st.dictionaries(st.text(max_size=4), FOREIGN, max_size=3), st.text(max_size=8))
def test_what_the_daemon_asks_is_written_as_the_standard_says(
    args: Any, read: Any, intent: Any, conditions: Any, said: str
) -> None:
    """Floats and foreign names where there may be any; what is our own is written without a look."""
    about = inputs.subject(
        operation=said,
        risk_tier="low",
        environment=said,
        tool=said,
        tool_version=said,
        target={"type": "item", "id": said},
        intent=intent,
        action_sha256="0" * 64,
        envelope={"requester": said, "preconditions": conditions, "postconditions": {}, "maximum_attempts": 1},
        args=args,
        contract={"version": said, "limit": 1.5},
        contract_sha256="0" * 64,
        upstream=said,
        origin=said,
        definition_sha256="0" * 64,
    )
    outcome = {"class": said, "output": read}
    question = inputs.document(about, now=said, principal={"id": said, "roles": [said]}, read=read, outcome=outcome)
    try:
        expected = canonical(dict(question))
    except NotCanonical:
        with pytest.raises(NotCanonical):
            input_text(question)
        return
    assert input_text(question) == canonical(question) == expected
    assert inputs.whole(question) == inputs.whole(dict(question))


def test_another_contract_has_another_text() -> None:
    """By identity, and what is known is kept alive: a new object never has the text of one that is gone."""
    contracts = Contracts()
    for number in range(2000):
        contract = {"number": number}
        assert contracts.text(contract) == canonical(contract)
        assert contracts.text(copy.deepcopy(contract)) == canonical(contract)


def test_a_large_contract_is_not_kept() -> None:
    """A thousand of them would be the memory of the machine; the text is the same."""
    contracts = Contracts()
    small, large = {"pad": "x" * 1000}, {"pad": "x" * 100_000}
    assert contracts.text(small) is contracts.text(small)
    assert contracts.text(large) is not contracts.text(large)
    assert contracts.text(large) == canonical(large)


@pytest.mark.parametrize("size", [10, 10 * INLINE_BYTES])
async def test_a_long_question_is_written_beside_the_loop_and_put_to_whom_decides_then(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload that retires a revision meanwhile must not have it asked: it would be closed by then."""
    done: list[str] = []
    written = evaluator.input_text

    def noted(document: Any) -> bytes:
        done.append(threading.current_thread().name.partition("_")[0])
        return written(document)

    async def ask(entrypoint: str, body: bytes) -> dict[str, Any]:
        done.append("asked")
        return {"value": json.loads(ALLOW)}

    def in_force() -> tuple[str, evaluator.Ask]:
        done.append("in force")
        return "r2", ask

    monkeypatch.setattr(evaluator, "input_text", noted)
    asked_by = evaluator.Evaluator("x", RealClock(), CountingIds())
    decision = await asked_by.decide(in_force, DECISION, {"args": {"memo": "x" * size}, "contract": {"a": 1}})
    assert decision.revision == "r2"
    assert done == [threading.current_thread().name if size == 10 else "foreign-input", "in force", "asked"]


@pytest.mark.parametrize("tenants", [1, INLINE_BYTES])
async def test_a_long_answer_is_checked_beside_the_loop(tenants: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of 4 MB takes a second and a half, in which nobody else would be answered."""
    done: list[str] = []
    check = entrypoints.check

    def noted(entrypoint: str, result: Any) -> Any:
        done.append(threading.current_thread().name.partition("_")[0])
        return check(entrypoint, result)

    async def ask(entrypoint: str, body: bytes) -> dict[str, Any]:
        return {"value": {"allow": True, "tenants": ["acme"] * tenants, "agents": ["*"], "reasons": []}}

    monkeypatch.setattr(entrypoints, "check", noted)
    asked_by = evaluator.Evaluator("x", RealClock(), CountingIds())
    decision = await asked_by.decide(lambda: ("r1", ask), entrypoints.AUTHZ, {"contract": None})
    assert len(decision.result["tenants"]) == tenants
    assert done == [threading.current_thread().name if tenants == 1 else "foreign-input"]
