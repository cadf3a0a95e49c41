"""The running call: the exchanges that prove what it sent, its deadline and its credential.

The scope travels in a context variable, because the plugin sits between the wrapper, which knows the call, and the
guard, which creates its exchanges. An exchange created outside a scope proves nothing.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kblockd.upstream.meter import Meter, Permit


def always(begun: bool) -> bool:
    """The permit of a call that needs none."""
    return True


_CURRENT: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("kblockd.upstream.scope", default=None)


@dataclass(slots=True)
class Scope:
    """``deadline`` in monotonic seconds; answers are read for ``late_seconds`` longer. Nothing is written once
    ``permit`` returns False: the caller has lost its authority (LSE-01)."""

    deadline: float
    late_seconds: float = 0.0
    credential: bytes | None = field(default=None, repr=False)
    meters: list[Meter] = field(default_factory=list)
    raw_connections: int = 0
    sealed: bool = False
    permit: Permit = always

    def add(self, meter: Meter) -> None:
        """Adds an exchange of this call."""
        self.meters.append(meter)
        if self.sealed:
            meter.seal()

    def seal(self) -> None:
        """Nothing more leaves through any exchange of this call, including exchanges created later."""
        self.sealed = True
        for meter in self.meters:
            meter.seal()

    def forget_credential(self) -> None:
        """Drops the secret after the call (R632)."""
        self.credential = None

    def proves_not_sent(self) -> bool:
        """Whether the exchanges alone prove that nothing was sent, whatever the plugin reports.

        True only for a sealed call that began its marked request through a guarded exchange, wrote no byte to any
        exchange, and used no raw connection. An exchange that was created and not used proves nothing: the plugin may
        have acted over a socket of its own (UPS-09).
        """
        asked = any(meter.asked for meter in self.meters)
        untouched = all(meter.written == 0 for meter in self.meters)
        return self.sealed and asked and untouched and not self.raw_connections

    def contradicts_not_sent(self) -> bool:
        """Whether the exchanges contradict a plugin's NOT_SENT.

        They do not if the plugin did no I/O at all (it refused the call), or marked every exchange and wrote nothing
        after the mark. Without a mark nobody knows which bytes belonged to the call (UPS-09).
        """
        unmarked = any(meter.marked is None or meter.begun for meter in self.meters)
        return unmarked or self.raw_connections > 0


def current() -> Scope | None:
    """The scope of the running task, or None outside a guarded call."""
    return _CURRENT.get()


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Tasks created inside the block run under ``scope``."""
    token = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(token)
