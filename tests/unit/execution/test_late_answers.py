"""Answers that come while an attempt that was lost is looked up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.contract import parse
from kblockd.domain.states import ResultClass
from kblockd.execution import reconcile
from kblockd.execution.classify import Classified
from kblockd.execution.late import LateOutcomes
from kblockd.upstream.adapter import Facts, Outcome, Sent
from tests.harness import refund_contract

LATE = {
    "names its operation": (Outcome(Sent.ACCEPTED, operation="op-7"), "op-7"),
    "names none": (Outcome(Sent.LOST, code="OPERATION_MISSING", facts=Facts(at_work=True)), ""),
}


@pytest.mark.parametrize("known", ["", "op-1"])
@pytest.mark.parametrize("late", LATE)
async def test_out_10_work_that_was_accepted_too_late_is_looked_up_by_its_operation(late: str, known: str) -> None:
    """OUT-10, C3: it proves nothing and forbids every absence; the operation that it names can show the effect."""
    outcome, operation = LATE[late]
    recorded: list[Any] = []

    async def commit(*given: Any, **_: Any) -> None:
        recorded.append(given)

    lates = LateOutcomes()
    lates.add("exe_1", 1, outcome)
    action = SimpleNamespace(execution_id="exe_1", contract=parse(refund_contract()))
    claim: Any = SimpleNamespace(run=SimpleNamespace(action=action, journal=SimpleNamespace(commit=commit)))
    parts: Any = SimpleNamespace(late=lates)
    lost = Classified(claim, 0.0, ResultClass.UNKNOWN_OUTCOME, "UPSTREAM_TIMEOUT", "", None, known)
    found = await reconcile._late_answer(parts, lost)
    assert isinstance(found, Classified)
    assert (found.at_work, found.operation, found.result_class) == (True, known or operation, "unknown_outcome")
    assert len(recorded) == 1
