"""Counts the bytes that one exchange writes, ends it at its deadline, and stops it on demand.

A byte counts before it is handed to the kernel, so zero is proof that nothing was sent and any other count may be too
high, never too low. TLS handshakes do not count: they carry no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx2

Permit = Callable[[bool], bool]
"""Asked before each write; the argument says whether the marked request has begun, after which writes only fetch its
answer."""


class Meter:
    """The counters and bounds that all connections of one exchange share.

    Requests may be written until ``deadline`` and answers read until ``read_until`` (monotonic seconds): a slightly
    late answer is evidence, a late request is not allowed.
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
        self.asked = False  # the marked request was begun, even if no connection was made
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
        """The next request carries the call. Ignored once that request has begun: a later mark proves nothing about
        bytes that have left (UPS-09)."""
        if not self.begun:
            self.marked, self.asked = self.written, False

    def ask(self) -> None:
        """A request is begun."""
        self.asked = self.marked is not None

    def since_mark(self) -> int:
        """Bytes written since the last mark, or all."""
        return self.written - (self.marked or 0)

    def cut(self, code: str) -> None:
        """Records why the exchange was cut; the first reason is final."""
        self.code = self.code or code

    def seal(self) -> None:
        """Nothing leaves from now on, not even bytes that the kernel still buffers, so ``written`` is final."""
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
        """Counts ``size`` bytes and returns the seconds left, or raises ``WriteTimeout`` and counts nothing."""
        left = self.deadline - self._clock()
        if self._sealed or left <= 0:
            self.cut("UPSTREAM_TIMEOUT")
            raise httpx2.WriteTimeout("the deadline has passed")
        if not self._permit(self.begun):
            self.cut("LEASE_ENDED")
            raise httpx2.WriteTimeout("the action's lease or deadline has ended, or it has already been done")
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
        """Counts raw bytes read, headers and framing included; raises ``ReadError`` above the limit."""
        self._read += size
        if self._read > self._read_limit:
            self.cut("RESPONSE_TOO_LARGE")
            raise httpx2.ReadError(f"the answer exceeds {self._read_limit} bytes")
