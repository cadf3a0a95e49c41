"""What the ledger says of earlier attempts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.execution import history
from kblockd.store.protocol import Append
from tests.records import Record, RecordType, filled

AT = "2026-12-01T00:00:00.000000Z"


class Ledger:
    """Records of one execution, and the row over them."""

    def __init__(self) -> None:
        self.leaves: list[bytes] = []
        self.parts: Any = SimpleNamespace(store=self)

    def add(self, type_: RecordType, attempt: int, **body: Any) -> None:
        self.leaves.append(Record(type_, AT, "acme", "exe_1", attempt, 12, filled(type_, **body)).leaf())

    def outcome(self, attempt: int, class_: str, *, late: bool = False, proof: str = "") -> None:
        self.add(RecordType.ATTEMPT_OUTCOME, attempt, late=late, proof=proof, **{"class": class_})

    async def leaf(self, index: int) -> Append:
        return Append(self.leaves[index])

    def row(self, **fields: Any) -> Any:
        return SimpleNamespace(**{"records": range(len(self.leaves)), "marker": 1, "late": None, **fields})


@pytest.mark.parametrize(
    ("classes", "acted"),
    [
        (["completed_unverified"], True),
        (["accepted"], True),
        (["completed_unverified", "failed_before_side_effect"], True),
        (["unknown_outcome", "failed_before_side_effect"], False),
    ],
)
async def test_c3_a_late_success_outweighs_an_absence_and_later_answers(classes: list[str], acted: bool) -> None:
    """C3: what answered after all is not absent, whatever another attempt answers late."""
    ledger = Ledger()
    ledger.outcome(1, "unknown_outcome")
    for attempt, class_ in enumerate(classes, 1):
        ledger.outcome(attempt, class_, late=True)
    row = ledger.row(late={"class": classes[-1]})
    assert await history.acted(ledger.parts, row) is acted


async def test_ups_16_attempts_that_were_not_begun_are_on_record() -> None:
    """A proof of another kind, or a record of an older version, is an attempt that counts."""
    ledger = Ledger()
    ledger.outcome(1, "failed_before_side_effect", proof="not_begun")
    ledger.outcome(2, "failed_before_side_effect", proof="not_sent")
    ledger.add(RecordType.ATTEMPT_OUTCOME, 3, late=False, proof="", **{"class": "failed_before_side_effect"})
    ledger.outcome(4, "failed_before_side_effect", proof="not_begun")
    assert await history.unbegun(ledger.parts, ledger.row()) == {1, 4}
    assert await history.unbegun(ledger.parts, ledger.row(marker=0)) == set()
