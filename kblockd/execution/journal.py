"""The one place where an execution commits: records, the version they are conditioned on, and the timings between.

Every commit after stage 3 is conditioned on the execution's row being as this journal last wrote it, so two runs of
one execution can never both advance it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kblockd.domain.canonical import sha256_hex
from kblockd.domain.clock import rfc3339
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.record import Body, Record
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.domain.ledger.sealing import ReceiptIssued
from kblockd.domain.ledger.values import Timings
from kblockd.domain.text import embedded, own
from kblockd.domain.values import value_type
from kblockd.store.protocol import Absent, Append, AtVersion, Condition, Conflict, Payload, Ticket
from kblockd.telemetry.recorder import Trace

if TYPE_CHECKING:
    from kblockd.domain.stages import Stage
    from kblockd.execution.parts import Parts


@value_type(frozen=True, slots=True)
class Entry:
    """A record to be. A receipt brings its own leaf; ``Journal.drawn`` fixes that of others."""

    body: Body
    aux: bytes = b""
    leaf: bytes = b""
    attempt: int | None = None  # of a late answer; None is the attempt that is being made
    sign: Callable[[], bytes] | None = None  # makes ``aux`` when the record is written

    def made(self) -> bytes:
        """The aux, once the record is written."""
        return self.aux if self.sign is None else self.sign()


@dataclass(slots=True)
class Written:
    """Records by index, payloads by digest."""

    records: dict[int, Entry] = field(default_factory=dict)
    payloads: dict[str, bytes] = field(default_factory=dict)

    def add(self, first_index: int, entries: Sequence[Entry], payloads: Sequence[Payload]) -> None:
        """What one commit ordered."""
        self.records.update(enumerate(entries, first_index))
        self.payloads.update((str(payload.key[-1]), payload.data) for payload in payloads)


NOTHING: Final = Written()
"""Of a run that is not here: everything is read from the store."""


@dataclass(slots=True)
class Journal:
    """``version`` is the index of the record that wrote the execution's row last; None before stage 3's commit.
    ``claimed`` is set once the consumption is durable, ``marked`` when a send marker may be on disk. ``written`` is
    what this journal itself has ordered, so that nobody needs to read it back."""

    execution_id: str
    tenant: str
    trace: Trace
    version: int | None = None
    attempt: int = 0
    claimed: asyncio.Event = field(default_factory=asyncio.Event)
    marked: bool = False
    written: Written = field(default_factory=Written)
    _timed: int = field(default=0)

    async def commit(
        self,
        parts: Parts,
        stage: Stage,
        entries: Sequence[Entry],
        *,
        conditions: Sequence[Condition] = (),
        payloads: Sequence[Payload] = (),
        at: dt.datetime | None = None,
    ) -> Ticket:
        """Ordered when it returns; raises ``Conflict`` or ``StoreFailed``. ``at`` is for what holds until some time:
        read before that was checked, in the same turn of the loop, so that no stop in between dates it later."""
        own = rows.execution(self.execution_id)
        held: Condition = Absent(own) if self.version is None else AtVersion(own, self.version)
        drawn = self.drawn(parts, stage, entries, at)
        appends = [Append(entry.leaf, entry.aux, entry.sign) for entry in drawn]
        ticket = await parts.store.commit([held, *conditions], appends, payloads, label=stage.label)
        parts.admission.recorded(len(appends), sum(len(payload.data) for payload in payloads))
        self.written.add(ticket.first_index, drawn, payloads)
        self.version = ticket.first_index + max(
            i for i, e in enumerate(entries) if not isinstance(e.body, ReceiptIssued)
        )
        parts.changes.notify(self.execution_id)
        return ticket

    def row(self, parts: Parts) -> ExecutionRow:
        """The execution's row as this journal wrote it last; raises ``Conflict`` when somebody else has since."""
        own = rows.execution(self.execution_id)
        found = parts.store.ordered(own)
        if found is None or found[0] != self.version:
            raise Conflict(AtVersion(own, self.version or 0))
        return found[1]

    def drawn(
        self, parts: Parts, stage: Stage, entries: Sequence[Entry], moment: dt.datetime | None = None
    ) -> list[Entry]:
        """The entries with their leaves as they will be committed; those that have one keep it."""
        at = rfc3339(moment or parts.clock.now())
        found = []
        for position, entry in enumerate(entries):
            if not entry.leaf:
                body = entry.body.timed(self._timings()) if position == 0 else entry.body
                attempt = self.attempt if entry.attempt is None else entry.attempt
                record = Record(body, at, self.tenant, self.execution_id, attempt, stage.order)
                entry = Entry(entry.body, entry.aux, record.leaf(), entry.attempt, entry.sign)
            found.append(entry)
        return found

    def _timings(self) -> Timings:
        """(stage, microseconds) of what ended since the last commit; a stage still open is counted by the next."""
        timings: list[tuple[int, int]] = []
        for row in self.trace.rows[self._timed :]:
            if not row.end_ns:
                break
            if not row.parent:
                timings.append((row.stage, (row.end_ns - row.start_ns) // 1000))
            self._timed += 1
        return tuple(timings[-32:])


def payload(parts: Parts, execution_id: str, kind: str, value: Any) -> tuple[str, Payload]:
    """(digest, payload) of something deletable; a salt inside keeps short values from being guessed by digest."""
    data = own({"salt": parts.ids.salt(), "kind": kind, "value": embedded(value)})
    digest = sha256_hex(data)
    return digest, Payload(rows.payload(execution_id, digest), data)
