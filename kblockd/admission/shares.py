"""Per-principal counters, and the refusal for a principal that exceeds its share.

A refusal is cheap: it comes before the request is read, leaves no record, and says when to retry.
Source: ``limits.per_principal``; AGT-03 to AGT-07.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from kblockd.admission.slots import Slots
from kblockd.admission.who import principal
from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason, ResourceExhausted
from kblockd.domain.settings import Shares

RETRY_SECONDS: Final = 1.0
READING: Final = 4
"""Requests of one principal that are read from the wire at once; further ones wait in gRPC's flow control, which
buffers 64 KiB of each. With the limit of 4 MiB per request, this and ``request_bytes`` bound the memory that one
principal can use (AGT-05)."""

SMALL: Final = 16_384
BYTES_PER_SECOND: Final = 1 << 20
"""Parsing a large request blocks the loop for some 20 ms per MiB. At this pace one principal's large requests use a
fiftieth of the loop, however many it sends; requests up to ``SMALL`` bytes are not paced."""
REFUSALS_PER_SECOND: Final = 20
HOLD_SECONDS: Final = 15.0
"""Longest delay of a refusal above ``REFUSALS_PER_SECOND``: it slows down a client that ignores the retry hint. Of
hundreds of callers that answer each refusal with the next call, a shorter one would leave the others less (AGT-04)."""
BURST_SECONDS: Final = 0.2
"""A burst is the amount allowed in this time; others would notice a longer one."""
ANSWER_BYTES: Final = 4096
"""This many answer bytes count as one more call: a page of a long list costs as much as many calls."""
DEBT_SECONDS: Final = 60.0
"""Upper bound on how far large answers can delay a principal's next calls."""
RECORDS_SECONDS: Final = 10.0
"""A burst of records is the amount allowed in this time."""
PAYLOAD_BYTES: Final = 4096
"""This many payload bytes count as one more record."""
_GOLDEN_RATIO: Final = (math.sqrt(5) - 1) / 2  # its multiples modulo 1 are evenly spread, however many there are


class Admission:
    """The shares of all principals; each principal has its own queue."""

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
        self._bidirectional: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._executions: Counter[str] = Counter()
        self._records: dict[str, tuple[float, float]] = {}
        self._longest_delays = 0

    def call(self, *, urgent: bool = False) -> AbstractContextManager[None]:
        """Counts a call of the current principal while it is in flight; raises ``ResourceExhausted``.

        ``urgent`` calls, which decide, stop or settle, have their own share and queue, so that the principal's other
        traffic cannot block them.
        """
        return _counted(self._urgent if urgent else self._calls, 1, self.shares.calls, "calls in flight")

    def stream(self) -> AbstractContextManager[None]:
        """Counts a watch or list while it is open; raises ``ResourceExhausted``."""
        return _counted(self._streams, 1, self.shares.streams, "watches and lists")

    def bidirectional(self) -> AbstractContextManager[None]:
        """Counts a bidirectional stream, in addition to ``stream``; raises ``ResourceExhausted``."""
        return _counted(self._bidirectional, 1, READING, "bidirectional streams")

    def holding(self, size: int) -> AbstractContextManager[None]:
        """Counts ``size`` request bytes while they are in memory; raises ``ResourceExhausted``."""
        return _counted(self._bytes, size, self.shares.request_bytes, "bytes of requests in flight")

    async def turn(self, *, urgent: bool = False) -> None:
        """Returns when the next call of the current principal may be processed, in order of arrival."""
        await (self._urgent_paced if urgent else self._calls_paced).turn(principal(), self._clock, 1)

    def answered(self, size: int) -> None:
        """Charges the current principal for an answer of ``size`` bytes, which delays its next calls."""
        if size > ANSWER_BYTES:
            now = self._clock.monotonic()
            self._calls_paced.take(principal(), now, size / ANSWER_BYTES, most=DEBT_SECONDS)

    async def turn_of(self, size: int) -> None:
        """As ``turn``, for a request of ``size`` bytes."""
        if size > SMALL:
            await self._bytes_paced.turn(principal(), self._clock, size)

    async def hold_back(self) -> None:
        """Delays a refusal above ``REFUSALS_PER_SECOND``.

        Those that reach the longest delay are spread over its second half: hundreds that end at one moment would occupy
        the loop together, and their callers would return together (AGT-04).
        """
        wait = self._refusals_paced.take(principal(), self._clock.monotonic(), 1, most=HOLD_SECONDS)
        if wait >= HOLD_SECONDS:
            self._longest_delays += 1
            wait *= 1 - self._longest_delays * _GOLDEN_RATIO % 1 / 2
        if wait > 0:
            await self._clock.sleep(wait)

    def check_execution(self) -> None:
        """Raises ``ResourceExhausted`` when the principal's share of executions is in use."""
        if self._executions[principal()] >= self.shares.executions:
            raise _over("executions under way", self.shares.executions, not_a_repeat=True)

    def begun(self) -> str:
        """Counts an execution of the current principal; pass the result to ``ended``."""
        who = principal()
        self._executions[who] += 1
        return who

    def ended(self, who: str) -> None:
        """The execution has ended."""
        _subtract(self._executions, who, 1)

    def check_records(self) -> None:
        """Raises ``ResourceExhausted`` when the principal has used up its records for now."""
        if (balance := self._balance(principal())) < 1:
            seconds = max(RETRY_SECONDS, (1 - balance) * 60 / self.shares.records_per_minute)
            raise _over("records a minute", self.shares.records_per_minute, not_a_repeat=True, retry_seconds=seconds)

    def may_record(self) -> bool:
        """Whether ``check_records`` would pass."""
        return self._balance(principal()) >= 1

    def recorded(self, count: int, payload_bytes: int = 0) -> None:
        """Charges the current principal for ``count`` records with ``payload_bytes`` of payloads beside them.

        Records that finish an execution are never refused, so the balance may become negative; it is paid off before
        anything new is accepted.
        """
        who = principal()
        spent = count + payload_bytes / PAYLOAD_BYTES
        self._records[who] = (self._balance(who) - spent, self._clock.monotonic())

    def _balance(self, who: str) -> float:
        now, per_second = self._clock.monotonic(), self.shares.records_per_minute / 60
        full = per_second * RECORDS_SECONDS
        balance, since = self._records.get(who, (full, now))
        return min(full, balance + (now - since) * per_second)


class _Pace:
    """A rate limit per principal, with a burst of ``ahead`` seconds' worth; waiters are served in order."""

    def __init__(self, per_second: float, ahead: float) -> None:
        self._per_second = per_second
        self._ahead = ahead
        self._next: dict[str, float] = {}
        self._queues: dict[str, asyncio.Lock] = {}

    def take(self, who: str, now: float, amount: float, *, most: float = math.inf) -> float:
        """Takes ``amount`` and returns the seconds from ``now`` until its turn, at most ``most``."""
        turn = max(self._next.get(who, -math.inf), now - self._ahead)
        turn = min(turn, now + most)
        self._next[who] = turn + amount / self._per_second
        return max(0.0, turn - now)

    async def turn(self, who: str, clock: Clock, amount: float) -> None:
        """Waits for the turn of ``amount`` and takes it. Only the head of the queue waits for a time, and it takes the
        amount when that has come, so a cancelled waiter delays nobody and later charges count for all."""
        async with self._queues.setdefault(who, asyncio.Lock()):
            if (early := self._next.get(who, -math.inf) - clock.monotonic()) > 0:
                await clock.sleep(early)
            self.take(who, clock.monotonic(), amount)


@contextmanager
def _counted(counter: Counter[str], amount: int, limit: int, what: str) -> Iterator[None]:
    who = principal()
    if counter[who] + amount > limit:
        raise _over(what, limit)
    counter[who] += amount
    try:
        yield
    finally:
        _subtract(counter, who, amount)


def _subtract(counter: Counter[str], who: str, amount: int) -> None:
    counter[who] -= amount
    if counter[who] <= 0:
        del counter[who]


def _over(
    what: str, limit: int, *, not_a_repeat: bool = False, retry_seconds: float = RETRY_SECONDS
) -> ResourceExhausted:
    """``not_a_repeat``: stage 2 has shown that the call does not repeat an earlier one. Before that, whether anything
    was executed or consumed is unknown."""
    known = False if not_a_repeat else None
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
