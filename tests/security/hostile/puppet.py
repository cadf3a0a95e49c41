"""Parts of a running daemon replaced by ones that lie: the upstream's answers, the clock, what policy says."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from kblockd.policy.deciding import Decision
from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from kblockd.upstream.wrapper import NotBegun
from tests.integration.pipeline.local import LocalSite

OnLate = Callable[[Outcome], None]
Invoke = Callable[[ToolCall, OnLate], Awaitable[Outcome]]
Read = Callable[[ToolCall], Awaitable[Outcome]]
LOST = Outcome(Sent.LOST, code="UPSTREAM_TIMEOUT", detail="no valid answer before the deadline")
DONE = Outcome(Sent.ANSWERED, output={"refund_id": "re_late", "status": "succeeded"})
ABSENT = Outcome(Sent.ANSWERED, output={"found": False})


class Puppet:
    """Stands for both identities of the upstream; what no test has replaced is the real one's answer."""

    def __init__(self, site: LocalSite, real: Any) -> None:
        self._site = site
        self._real = real
        self.on_invoke: Invoke = real.write.invoke
        self.on_read: Read = real.read.read
        self.on_lookup: Read = real.read.lookup
        self.invoked: list[ToolCall] = []
        self.check_credential = real.write.check_credential
        self.describe = real.read.describe
        self.poll = real.write.poll
        self.close = real.write.close

    @classmethod
    @contextlib.contextmanager
    def of(cls, site: LocalSite) -> Iterator[Puppet]:
        """In place of the upstream ``payments`` until the end."""
        assert site.daemon is not None
        found = site.daemon.parts.upstreams._upstreams
        real = found["payments"]
        made: Any = cls(site, real)
        found["payments"] = dataclasses.replace(real, write=made, read=made)
        try:
            yield made
        finally:
            found["payments"] = real

    async def invoke(
        self,
        call: ToolCall,
        on_late: OnLate,
        permit: Callable[[bool], bool],
        on_outlive: Callable[[], object],
        unfit: Callable[[], str],
    ) -> Outcome:
        """Counted, once the last look has let it go; no task outlives its answer."""
        if code := unfit():
            return NotBegun(Sent.NOT_SENT, code=code)
        self.invoked.append(call)
        return await self.on_invoke(call, on_late)

    async def read(self, call: ToolCall) -> Outcome:
        """Snapshots and verifications."""
        return await self.on_read(call)

    async def lookup(self, call: ToolCall) -> Outcome:
        """Does the effect exist?"""
        return await self.on_lookup(call)


@contextlib.contextmanager
def after_question(site: LocalSite, entrypoint: str, then: Callable[[int], None]) -> Iterator[None]:
    """Calls ``then`` with the number of the question each time that policy has answered this entry point."""
    assert site.daemon is not None
    parts: Any = site.daemon.parts
    real = parts.engine

    class Engine:
        asked = 0
        status = real.status

        async def evaluate(self, asked: str, document: Mapping[str, Any]) -> Decision:
            decision: Decision = await real.evaluate(asked, document)
            if asked == entrypoint:
                Engine.asked += 1
                then(Engine.asked)
            return decision

    object.__setattr__(parts, "engine", Engine())
    try:
        yield
    finally:
        object.__setattr__(parts, "engine", real)


def warp(site: LocalSite, seconds: float) -> None:
    """Time that passed while nobody looked."""
    assert site.daemon is not None
    clock: Any = site.daemon.parts.clock
    clock._wall += dt.timedelta(seconds=seconds)
