"""The table of shares: what is counted for each principal, and the one refusal for all that is over.

A refusal costs next to nothing: it comes before the request is read, leaves no record, and says when to come again.
Source: ``limits.per_principal``; AGT-03 to AGT-07.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kblockd.admission.slots import Slots
from kblockd.admission.who import principal
from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason, ResourceExhausted
from kblockd.domain.settings import Shares

RETRY_SECONDS: Final = 1.0
READING: Final = 4
"""Requests of one principal that are read from the wire at once: the others wait in gRPC's flow control, which keeps
64 KiB of each. With the 4 MiB that a request may have, they and ``request_bytes`` bound what a principal can make the
daemon hold (AGT-05)."""

SMALL: Final = 16_384
BYTES_PER_SECOND: Final = 1 << 20
"""Parsing a large request holds the loop for some 20 ms a MiB. At this pace one principal's large requests take a
fiftieth of the loop, however many it sends; requests up to ``SMALL`` bytes are not paced."""
REFUSALS_PER_SECOND: Final = 20
HOLD_SECONDS: Final = 5.0
"""Refusals that one principal is told at once; those beyond it are told up to so much later, so that a client that does
not heed the hint keeps to it all the same."""
BURST_SECONDS: Final = 0.2
"""A burst is what this time allows: a longer one would be felt by the others while it lasts."""
ANSWER_BYTES: Final = 4096
"""So many bytes of an answer count as one more call: a page of a long list costs what many calls cost."""
DEBT_SECONDS: Final = 60.0
"""How far what was sent can put off the next calls: nobody is kept waiting for ever by what it has read."""
RECORDS_SECONDS: Final = 10.0
"""A burst of records is what this time allows."""
KEPT_BYTES: Final = 4096
"""So many bytes beside a record count as one more record."""


class Admission:
    """The shares of all principals. What waits, waits in a queue of its own principal."""

    def __init__(self, shares: Shares, clock: Clock) -> None:
        self.shares = shares
        self.reading = Slots(None, READING)
        self.urgent_reading = Slots(None, READING)
        self._clock = clock
        self._bytes_paced = _Pace(BYTES_PER_SECOND, 0)
        self._calls_paced = _Pace(shares.calls_per_second, BURST_SECONDS)
        self._urgent_paced = _Pace(shares.calls_per_second, BURST_SECONDS)
        self._refusals_paced = _Pace(REFUSALS_PER_SECOND, BURST_SECONDS)
        self._calls: Counter[str] = Counter()
        self._urgent: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._talks: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._executions: Counter[str] = Counter()
        self._records: dict[str, tuple[float, float]] = {}

    @contextmanager
    def call(self, *, urgent: bool = False) -> Iterator[None]:
        """While a call of the current principal is in flight; raises ``ResourceExhausted``. ``urgent`` ones, by which
        people decide, stop and settle, have a share and a queue of their own: what else the principal does, or has
        read, keeps nobody from them."""
        with _counted(self._urgent if urgent else self._calls, 1, self.shares.calls, "calls in flight"):
            yield

    @contextmanager
    def stream(self) -> Iterator[None]:
        """While it watches or reads a list; raises ``ResourceExhausted``."""
        with _counted(self._streams, 1, self.shares.streams, "watches and lists"):
            yield

    @contextmanager
    def talk(self) -> Iterator[None]:
        """While it asks on a stream, besides the share of streams; raises ``ResourceExhausted``."""
        with _counted(self._talks, 1, READING, "streams of questions"):
            yield

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """While ``size`` bytes of a request are held for it; raises ``ResourceExhausted``."""
        with _counted(self._bytes, size, self.shares.request_bytes, "bytes of requests in flight"):
            yield

    async def turn(self, *, urgent: bool = False) -> None:
        """Returns when the next call of the current principal may be worked on; they come in their order."""
        await (self._urgent_paced if urgent else self._calls_paced).turn(principal(), self._clock, 1)

    def answered(self, size: int) -> None:
        """The current principal was sent so many bytes; its next calls wait for it."""
        if size > ANSWER_BYTES:
            now = self._clock.monotonic()
            self._calls_paced.wait(principal(), now, size / ANSWER_BYTES, most=DEBT_SECONDS)

    async def turn_of(self, size: int) -> None:
        """The same for a request of so many bytes."""
        if size > SMALL:
            await self._bytes_paced.turn(principal(), self._clock, size)

    async def hold_back(self) -> None:
        """Before a refusal is told."""
        wait = self._refusals_paced.wait(principal(), self._clock.monotonic(), 1, most=HOLD_SECONDS)
        if wait > 0:
            await self._clock.sleep(wait)

    def check_execution(self) -> None:
        """Raises ``ResourceExhausted`` when as many of its executions run as may."""
        if self._executions[principal()] >= self.shares.executions:
            raise _over("executions under way", self.shares.executions, looked=True)

    def begun(self) -> str:
        """An execution runs for the current principal; the answer is for ``ended``."""
        who = principal()
        self._executions[who] += 1
        return who

    def ended(self, who: str) -> None:
        """It runs no more."""
        _less(self._executions, who, 1)

    def check_records(self) -> None:
        """Raises ``ResourceExhausted`` when it has written all the records that it may for now."""
        if (balance := self._balance(principal())) < 1:
            seconds = max(RETRY_SECONDS, (1 - balance) * 60 / self.shares.records_per_minute)
            raise _over("records a minute", self.shares.records_per_minute, looked=True, retry_seconds=seconds)

    def may_record(self) -> bool:
        """``check_records`` as an answer."""
        return self._balance(principal()) >= 1

    def recorded(self, count: int, kept_bytes: int = 0) -> None:
        """``count`` records were written for the current principal, with ``kept_bytes`` of payloads beside them.

        What finishes an execution is never refused, so the balance may fall below nothing; it is paid off before
        anything new.
        """
        who = principal()
        spent = count + kept_bytes / KEPT_BYTES
        self._records[who] = (self._balance(who) - spent, self._clock.monotonic())

    def _balance(self, who: str) -> float:
        now, per_second = self._clock.monotonic(), self.shares.records_per_minute / 60
        most = per_second * RECORDS_SECONDS
        left, since = self._records.get(who, (most, now))
        return min(most, left + (now - since) * per_second)


class _Pace:
    """So many a second for each principal, after a burst of what ``ahead`` seconds allow; the others wait in order."""

    def __init__(self, per_second: float, ahead: float) -> None:
        self._per_second = per_second
        self._ahead = ahead
        self._next: dict[str, float] = {}
        self._queues: dict[str, asyncio.Lock] = {}

    def wait(self, who: str, now: float, amount: float, *, most: float = math.inf) -> float:
        """Seconds from ``now`` until the turn of ``amount`` more, which is taken; no longer than ``most``."""
        turn = max(self._next.get(who, -math.inf), now - self._ahead)
        turn = min(turn, now + most)
        self._next[who] = turn + amount / self._per_second
        return max(0.0, turn - now)

    async def turn(self, who: str, clock: Clock, amount: float) -> None:
        """Returns at the turn of ``amount`` more. Only the first in the queue waits for a time, and takes it when it
        has come: so one that gives up puts nobody off, and all heed what is taken meanwhile."""
        async with self._queues.setdefault(who, asyncio.Lock()):
            if (early := self._next.get(who, -math.inf) - clock.monotonic()) > 0:
                await clock.sleep(early)
            self.wait(who, clock.monotonic(), amount)


@contextmanager
def _counted(counter: Counter[str], amount: int, limit: int, what: str) -> Iterator[None]:
    who = principal()
    if counter[who] + amount > limit:
        raise _over(what, limit)
    counter[who] += amount
    try:
        yield
    finally:
        _less(counter, who, amount)


def _less(counter: Counter[str], who: str, amount: int) -> None:
    counter[who] -= amount
    if counter[who] <= 0:
        del counter[who]


def _over(what: str, limit: int, *, looked: bool = False, retry_seconds: float = RETRY_SECONDS) -> ResourceExhausted:
    """``looked``: that this call did not repeat one which did something. Before that nobody knows."""
    known = False if looked else None
    return ResourceExhausted(
        Reason.PRINCIPAL_LIMIT,
        f"{principal() or 'the daemon'} has used up its share: {limit} {what}. Nothing was done or recorded for this "
        "call.",
        executed=known,
        consumed=known,
        retryable=True,
        next_step="let some of your calls end, then repeat the identical call; an operator can raise "
        "limits.per_principal",
        retry_after_seconds=retry_seconds,
    )
