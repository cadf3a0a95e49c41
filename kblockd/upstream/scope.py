"""The call that is running: whose exchanges count as its proof, when it ends, and as whom it speaks.

The scope travels in a context variable, because the plugin stands between the wrapper, which knows the call, and the
guard, which makes its exchanges. An exchange that is made outside a scope proves nothing.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kblockd.upstream.meter import Meter, Permit


def always(begun: bool) -> bool:
    """The permit of what needs none."""
    return True


_CURRENT: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("kblockd.upstream.scope", default=None)


@dataclass(slots=True)
class Scope:
    """``deadline`` in monotonic seconds; answers are read for ``late_seconds`` longer. Nothing is written once
    ``permit`` says no: whoever calls has lost the authority to (LSE-01)."""

    deadline: float
    late_seconds: float = 0.0
    credential: bytes | None = field(default=None, repr=False)
    meters: list[Meter] = field(default_factory=list)
    raw_connections: int = 0
    sealed: bool = False
    permit: Permit = always

    def add(self, meter: Meter) -> None:
        """A further exchange of this call."""
        self.meters.append(meter)
        if self.sealed:
            meter.seal()

    def seal(self) -> None:
        """Nothing more leaves through any exchange of this call, also not through one that is made later."""
        self.sealed = True
        for meter in self.meters:
            meter.seal()

    def forget_credential(self) -> None:
        """After the call nothing here holds the secret (R632)."""
        self.credential = None

    def proves_not_sent(self) -> bool:
        """Whether the exchanges alone prove it, whatever the plugin says or fails to say.

        Only for a sealed call which asked for the request that it had marked, through a guarded exchange, wrote no
        byte to any exchange, and took no other way out. An exchange that was taken and not used proves nothing: the
        plugin may have acted over a socket of its own (UPS-09).
        """
        asked = any(meter.asked for meter in self.meters)
        untouched = all(meter.written == 0 for meter in self.meters)
        return self.sealed and asked and untouched and not self.raw_connections

    def contradicts_not_sent(self) -> bool:
        """Whether a plugin's own word NOT_SENT cannot be believed.

        It can where the plugin took no way out at all (it refused the call before any I/O), or marked every exchange
        and wrote nothing after the mark. Without a mark nobody knows which of the bytes were the call's (UPS-09).
        """
        unmarked = any(meter.marked is None or meter.begun for meter in self.meters)
        return unmarked or self.raw_connections > 0


def current() -> Scope | None:
    """The scope of the running task, if a wrapper started it."""
    return _CURRENT.get()


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    """Tasks that start inside run under ``scope``."""
    token = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(token)
