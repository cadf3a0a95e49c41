"""The principal on whose behalf the running task works.

A context variable, because neither the plugin API nor the policy protocol carries a principal, and because tasks
inherit it: a run stays the caller's after the call has ended. The daemon's own work counts as principal "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_WHO: Final[ContextVar[str]] = ContextVar("kblockd_principal", default="")


principal: Final[Callable[[], str]] = _WHO.get
"""The id of the principal, or "" for the daemon's own work."""


@contextmanager
def on_behalf_of(principal_id: str) -> Iterator[None]:
    """Sets the principal for this task and for the tasks that it starts inside the block."""
    token = _WHO.set(principal_id)
    try:
        yield
    finally:
        _WHO.reset(token)
