"""Shared by both watchers: a poll loop that survives errors, and de-duplicated refusal reports."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from kblockd.domain.clock import Clock
from kblockd.policy.faults import BundleRefused

OnRefused = Callable[[BundleRefused], Awaitable[None]]

_log = logging.getLogger(__name__)


async def poll(clock: Clock, interval_seconds: float, look: Callable[[], Awaitable[object]]) -> NoReturn:
    """Calls ``look`` every ``interval_seconds`` until cancelled. An error (such as a record that could not be written)
    does not end the loop; it is logged once until a call succeeds."""
    logged = ""
    while True:
        await clock.sleep(interval_seconds)
        try:
            await look()
            logged = ""
        except Exception as error:
            if (name := type(error).__name__) != logged:
                _log.warning("a look at the policy failed (%s): it is repeated, the revision in force stays", name)
                logged = name


class Refusals:
    """Reports each refusal once, until ``forget``: a bundle that stays broken floods neither log nor ledger."""

    def __init__(self, on_refused: OnRefused) -> None:
        self._on_refused = on_refused
        self._told = ""

    async def tell(self, refused: BundleRefused) -> None:
        """A refusal counts as reported once ``on_refused`` returns; if it raises, the next poll reports it again."""
        mark = refused.revision or str(refused)
        if mark != self._told:
            await self._on_refused(refused)
            self._told = mark

    def forget(self) -> None:
        """Reports the next refusal even if it is the same."""
        self._told = ""
