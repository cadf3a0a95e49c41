"""What every watch over policies has in common: the poll that nothing ends, and a refusal that is told once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from kblockd.domain.clock import Clock
from kblockd.policy.faults import PolicyRefused

OnRefused = Callable[[PolicyRefused], Awaitable[None]]

_log = logging.getLogger(__name__)


async def poll(clock: Clock, interval_seconds: float, look: Callable[[], Awaitable[object]]) -> NoReturn:
    """Looks every ``interval_seconds`` until it is cancelled. What a look raises (the record could not be written)
    must not end the watch: the next one tries again, and the log says so once until a look ends well."""
    said = ""
    while True:
        await clock.sleep(interval_seconds)
        try:
            await look()
            said = ""
        except Exception as error:
            if (name := type(error).__name__) != said:
                _log.warning("a look at the policy failed (%s): it is repeated, the revision in force stays", name)
                said = name


class Refusals:
    """Tells of each refusal once, until ``forget``: a bundle that stays broken fills neither log nor ledger."""

    def __init__(self, on_refused: OnRefused) -> None:
        self._on_refused = on_refused
        self._told = ""

    async def tell(self, refused: PolicyRefused) -> None:
        """Counts as told once ``on_refused`` returned: what it raises is tried again at the next look."""
        mark = refused.revision or str(refused)
        if mark != self._told:
            await self._on_refused(refused)
            self._told = mark

    def forget(self) -> None:
        """The next refusal is told whatever it is."""
        self._told = ""
