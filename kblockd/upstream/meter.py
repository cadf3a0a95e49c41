"""What one exchange puts on the wire: counted, ended at the deadline, and stopped when told.

A byte counts before it is handed to the kernel, so that zero is proof and anything else is a guess on the safe side.
TLS handshakes do not count: they carry no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx2

Permit = Callable[[bool], bool]
"""Asked before each write, with whether the request that matters has begun: what follows it fetches the answer."""


class Meter:
    """The counters and bounds that all connections of one exchange share.

    Requests may be written until ``deadline`` and answers read until ``read_until`` (monotonic seconds): an answer
    that comes a little late is evidence, a request that leaves late is not allowed.
    """

    def __init__(
        self,
        deadline: float,
        read_until: float,
        read_limit: int,
        clock: Callable[[], float] = time.monotonic,
        permit: Permit = lambda begun: True,
    ) -> None:
        self.deadline = deadline
        self.read_until = read_until
        self.written = 0
        self.marked: int | None = None
        self.asked = False  # the marked request was begun, even if no connection came about
        self.code = ""
        self.on_seal: Callable[[], None] = lambda: None
        self._sealed = False
        self._read = 0
        self._read_limit = read_limit
        self._clock = clock
        self._permit = permit

    @property
    def begun(self) -> bool:
        """Bytes were written after a mark."""
        return self.marked is not None and self.written > self.marked

    def mark(self) -> None:
        """The next request is the one that matters. Once that has begun it stays the one: a later mark proves nothing
        of what has left (UPS-09)."""
        if not self.begun:
            self.marked, self.asked = self.written, False

    def ask(self) -> None:
        """A request is begun."""
        self.asked = self.marked is not None

    def since_mark(self) -> int:
        """Bytes since the last mark, or all."""
        return self.written - (self.marked or 0)

    def cut(self, code: str) -> None:
        """Remembers why the exchange was cut; the first reason stays."""
        self.code = self.code or code

    def seal(self) -> None:
        """From here on nothing leaves, so that ``written`` is final; neither what the kernel still holds."""
        self._sealed = True
        self.on_seal()

    def may_connect(self) -> float:
        """Seconds left for a connection or a handshake; raises ``ConnectTimeout``."""
        left = self.deadline - self._clock()
        if self._sealed or left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpx2.ConnectTimeout("the deadline has passed")
        return left

    def may_write(self, size: int) -> float:
        """Counts ``size`` bytes and answers the seconds left; raises ``WriteTimeout`` and counts nothing."""
        left = self.deadline - self._clock()
        if self._sealed or left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpx2.WriteTimeout("the deadline has passed")
        if not self._permit(self.begun):
            self.cut("LEASE_ENDED")
            raise httpx2.WriteTimeout("the lease or the deadline of the action has ended, or it is done already")
        self.written += size
        return left

    def may_read(self) -> float:
        """Seconds left for an answer; raises ``ReadTimeout``."""
        left = self.read_until - self._clock()
        if left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpx2.ReadTimeout("the deadline has passed")
        return left

    def took(self, size: int) -> None:
        """Bounds what is read raw, headers and framing included; raises ``ReadError``."""
        self._read += size
        if self._read > self._read_limit:
            self.cut("RESPONSE_TOO_LARGE")
            raise httpx2.ReadError(f"more than {self._read_limit} bytes came back")
