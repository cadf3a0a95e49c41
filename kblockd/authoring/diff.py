"""``policy diff``: replays the decisions of a ledger with another bundle before it is deployed.

Both sides get the recorded inputs with their decision times; nothing is recorded or executed.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from kblockd.authoring.recorded import Inputs, NotReplayable, Reader, Recorded, RecordedQuestion, Why, decisions
from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyEngine, PolicyFailure, verdicts
from kblockd.policy.deciding.verdicts import Verdict

_AT_ONCE: Final = 32
_BUSY: Final = (Reason.POLICY_TIMEOUT, Reason.POLICY_DOWN)


class Change(enum.StrEnum):
    """What becomes of a recorded decision."""

    UNCHANGED = "unchanged"
    OTHER_REASONS = "other_reasons"
    """The same answer, for other reasons."""
    CHANGED = "changed"
    NOT_REPLAYABLE = "not_replayable"


@dataclass(frozen=True, slots=True)
class Compared:
    """One recorded decision; without verdicts when it cannot be replayed, which ``why`` explains."""

    recorded: Recorded
    old: Verdict | None = None
    new: Verdict | None = None
    why: Why | None = None

    @property
    def change(self) -> Change:
        """By what follows from the answers, then by their reasons."""
        if self.old is None or self.new is None:
            return Change.NOT_REPLAYABLE
        if self.old.consequence != self.new.consequence:
            return Change.CHANGED
        return Change.UNCHANGED if self.old.codes == self.new.codes else Change.OTHER_REASONS


@dataclass(slots=True)
class Tally:
    """Counts over everything that was compared."""

    decisions: Counter[Change] = field(default_factory=Counter)
    missing: Counter[Why] = field(default_factory=Counter)
    executions: set[str] = field(default_factory=set)
    """Those with a decision that would change."""

    def add(self, compared: Compared) -> None:
        """One more."""
        self.decisions[compared.change] += 1
        if compared.why is not None:
            self.missing[compared.why] += 1
        if compared.change is Change.CHANGED and compared.recorded.execution:
            self.executions.add(compared.recorded.execution)


async def diff(
    ledger: Reader, old: PolicyEngine | None, new: PolicyEngine, progress: Callable[[int], None] = lambda index: None
) -> AsyncIterator[Compared]:
    """Every decision of the ledger, in its order. ``old`` None: what is on record. ``progress`` is told the index of
    the record that was reached. Raises what ``ledger`` raises when it cannot be read."""
    found, inputs = decisions(ledger), Inputs(ledger)
    while batch := list(islice(_questions(found, inputs), _AT_ONCE)):
        together = await asyncio.gather(*(_compared(*pair, old, new) for pair in batch))
        for pair, compared in zip(batch, together, strict=True):
            yield await _compared(*pair, old, new) if _waited(compared) else compared
        progress(batch[-1][0].index)


def _questions(found: Iterator[Recorded], inputs: Inputs) -> Iterator[tuple[Recorded, RecordedQuestion | Why]]:
    for recorded in found:
        try:
            yield recorded, inputs.question(recorded)
        except NotReplayable as missing:
            yield recorded, missing.why


async def _compared(
    recorded: Recorded, question: RecordedQuestion | Why, old: PolicyEngine | None, new: PolicyEngine
) -> Compared:
    if isinstance(question, Why):
        return Compared(recorded, why=question)
    before = recorded.verdict if old is None else await _asked(old, recorded, question)
    return Compared(recorded, before, await _asked(new, recorded, question))


def _waited(compared: Compared) -> bool:
    """Whether the rest of its batch may have caused a time-out: it is then repeated alone before that counts as a
    change."""
    given = [verdict for verdict in (compared.old, compared.new) if verdict]
    return any(verdict.consequence.get("failure") in _BUSY for verdict in given)


async def _asked(engine: PolicyEngine, recorded: Recorded, question: RecordedQuestion) -> Verdict:
    try:
        decision = await engine.evaluate(recorded.entrypoint, question.document)
    except PolicyFailure as failure:
        return verdicts.of_failure(failure)
    return verdicts.of(recorded.entrypoint, decision.result, past_return=question.past_return, floor=recorded.floor)
