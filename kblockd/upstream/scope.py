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
        """True only for a sealed call that used exchanges, and nothing else, and wrote no byte to any."""
        untouched = all(meter.written == 0 for meter in self.meters)
        return self.sealed and bool(self.meters) and untouched and not self.raw_connections

    def contradicts_not_sent(self) -> bool:
        """Bytes were written after a mark: the request that matters was begun."""
        return any(meter.begun for meter in self.meters)


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
