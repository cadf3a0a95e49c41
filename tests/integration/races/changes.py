"""What a consumption relies on, changed under a running daemon: recorded first, then in force, as a reload would."""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from typing import Any, Final

from kblockd.domain import contract
from kblockd.execution.activate import Activation
from kblockd.upstream.model import ToolPin
from tests.harness import revoke
from tests.integration.staged import CONSUMPTION, StagedSite
from tests.records import RecordType

PAST_THE_APPROVAL: Final = 601.0  # seconds; an approval is good for 600
_NO_MORE: Final = ('"ok": count(problems) == 0,', '"ok": count(problems) == -1,')


class Change(ABC):
    """``type`` is that of its record (None: it has none), ``reasons`` are how a call that has seen it is refused.

    ``last_seen`` is the last point at which a call must see it: what has a record, up to the consumption's own place in
    the ledger. ``too_late``: it was itself refused, because the consumption had come first.
    """

    type: RecordType | None
    reasons: frozenset[str]
    last_seen = CONSUMPTION
    too_late = False

    @abstractmethod
    async def make(self, site: StagedSite, approval_id: str) -> None:
        """On the daemon's loop; durable when it returns."""

    @abstractmethod
    async def undo(self, site: StagedSite) -> None:
        """As it was; also when it was never made."""


class PolicyForbids(Change):
    """A revision under which no precondition holds."""

    type = RecordType.POLICY_ACTIVATED
    reasons = frozenset({"PRECONDITION_FAILED"})
    texts = _NO_MORE

    async def make(self, site: StagedSite, approval_id: str) -> None:
        site.edit_policy("preconditions.rego", *self.texts)
        assert await site.daemon.policy.reload()

    async def undo(self, site: StagedSite) -> None:
        if self.texts[1] in (site.config.parent / "policy" / "preconditions.rego").read_text():
            site.edit_policy("preconditions.rego", self.texts[1], self.texts[0])
            assert await site.daemon.policy.reload()


class PolicyReads(PolicyForbids):
    """Another revision that decides alike: nothing is refused, but the claim names the revision in force."""

    reasons = frozenset()
    texts = ("# - kblockd\npackage kblock.preconditions", "# - kblockd again\npackage kblock.preconditions")


class Repinned(Change):
    """Another definition of the tool was reviewed: what was approved is void."""

    type = RecordType.UPSTREAM_ACTIVATED
    reasons = frozenset({"BINDING_CHANGED"})

    def __init__(self) -> None:
        self._before: Any = None

    async def make(self, site: StagedSite, approval_id: str) -> None:
        self._before = site.parts.upstreams["payments"]
        pins = {**self._before.config.tools, "refund": ToolPin(definition_sha256="0" * 64)}
        config = self._before.config.model_copy(update={"tools": pins})
        await self._activate(site, dataclasses.replace(self._before, config=config))

    async def undo(self, site: StagedSite) -> None:
        if self._before is not None:
            await self._activate(site, self._before)

    async def _activate(self, site: StagedSite, upstream: Any) -> None:
        await Activation(site.parts.store, site.parts.clock).upstreams({"payments": upstream.config})
        site.parts.upstreams._upstreams["payments"] = upstream  # a reload is not there yet; this is what it will change


class ContractChanged(Change):
    """Another version of the contract: another agreement."""

    type = RecordType.CONTRACT_ACTIVATED
    reasons = frozenset({"BINDING_CHANGED"})

    def __init__(self, key: tuple[str, str]) -> None:
        self._key = key
        self._before: Any = None

    async def make(self, site: StagedSite, approval_id: str) -> None:
        self._before = site.configured.contracts[self._key]
        await self._activate(site, contract.parse({**self._before.document, "version": self._before.version + 1}))

    async def undo(self, site: StagedSite) -> None:
        if self._before is not None:
            await self._activate(site, self._before)

    async def _activate(self, site: StagedSite, agreed: contract.ActionContract) -> None:
        await Activation(site.parts.store, site.parts.clock).contracts({self._key: agreed})
        site.configured.contracts[self._key] = agreed


class Disabled(Change):
    """A principal that is no longer configured: the requester, or who approved (whose role policy then misses)."""

    type = RecordType.PRINCIPAL_CHANGED
    reasons = frozenset({"PERMISSION_DENIED", "POLICY_CHANGED"})

    def __init__(self, principal: str) -> None:
        self._principal = principal
        self._before: Any = None

    async def make(self, site: StagedSite, approval_id: str) -> None:
        self._before = site.configured.principals.pop(self._principal)
        await self._activate(site)

    async def undo(self, site: StagedSite) -> None:
        if self._before is not None:
            site.configured.principals[self._principal] = self._before
            await self._activate(site)

    async def _activate(self, site: StagedSite) -> None:
        await Activation(site.parts.store, site.parts.clock).principals(site.configured.principals)


class Revoked(Change):
    """Who approved it takes it back.

    What is used can no longer be revoked: then there is no record, and the refusal says that it was consumed.
    """

    type = RecordType.APPROVAL_REVOKED
    reasons = frozenset({"APPROVAL_NOT_VALID"})

    async def make(self, site: StagedSite, approval_id: str) -> None:
        refused = await asyncio.to_thread(revoke, site, approval_id)
        if refused is not None:
            assert (refused.reason, refused.consumed) == ("APPROVAL_NOT_VALID", True), refused
            self.too_late = True

    async def undo(self, site: StagedSite) -> None:
        """It cannot be."""


class Expired(Change):
    """The approval's time passes, while the machine sleeps: by code at 5 and 9, by policy at 8.

    It is looked at right before the commit is handed over; between the two lies no wait.
    """

    type = None
    reasons = frozenset({"APPROVAL_NOT_VALID", "POLICY_CHANGED"})
    last_seen = "consume:before"

    async def make(self, site: StagedSite, approval_id: str) -> None:
        site.machine.asleep += PAST_THE_APPROVAL

    async def undo(self, site: StagedSite) -> None:
        """Time goes on."""
