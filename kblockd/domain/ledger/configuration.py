"""What is configured, on record: policy, contracts, upstreams, principals, keys; lives of the daemon, erasures.

Each of these records determines its row whole, so that it stands alone; a consumption is conditioned on the rows.
"""

from __future__ import annotations

from typing import ClassVar

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.moves import derived
from kblockd.domain.ledger.record import Body, Record, WithDecision
from kblockd.domain.ledger.rows import (
    Changes,
    ContractRow,
    DaemonRow,
    KeyRow,
    PolicyRow,
    PrincipalRow,
    PrunedRow,
    Read,
    UpstreamRow,
)
from kblockd.domain.ledger.values import Contract, Erased, Life, Number, Person, Policy, SigningKey, Upstream


class PolicyActivated(Policy, Body, frozen=True):
    """A revision decides from here on; its bundle is a payload."""

    TYPE: ClassVar = "policy.activated"
    WRITES: ClassVar = ("policy",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """In force."""
        return [(rows.policy(), derived(PolicyRow, self, at=record.at, records=(index,)))]


class PolicyRefused(Body, frozen=True):
    """A bundle that did not replace the one in force."""

    TYPE: ClassVar = "policy.refused"

    revision: str
    faults: Number


class ContractActivated(Contract, Body, frozen=True):
    """A contract as configured; its document is a payload."""

    TYPE: ClassVar = "contract.activated"
    WRITES: ClassVar = ("contract",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """In force."""
        row = derived(ContractRow, self, at=record.at, records=(index,))
        return [(rows.contract(self.operation, self.environment), row)]


class UpstreamActivated(Upstream, Body, frozen=True):
    """An upstream as configured."""

    TYPE: ClassVar = "upstream.activated"
    WRITES: ClassVar = ("upstream",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """In force."""
        return [(rows.upstream(self.name), derived(UpstreamRow, self, at=record.at, records=(index,)))]


class PrincipalChanged(Person, Body, frozen=True):
    """A principal as configured, or disabled."""

    TYPE: ClassVar = "principal.changed"
    WRITES: ClassVar = ("principal",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """As it is now."""
        return [(rows.principal(self.id), derived(PrincipalRow, self, at=record.at, records=(index,)))]


class KeyAdded(SigningKey, Body, frozen=True):
    """A key signs from here on; the signed key set is the record's aux."""

    TYPE: ClassVar = "key.added"
    WRITES: ClassVar = ("key", "active_key")

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """Active."""
        row = derived(KeyRow, self, state="active", records=(index,))
        return [(rows.key(self.kid), row), (rows.active_key(self.role), row)]


class _KeyEnded(SigningKey, Body, frozen=True):
    """The record repeats what the row needs, so that it stands alone."""

    WRITES: ClassVar = ("key", "active_key")
    STATE: ClassVar[str]

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """No longer active."""
        key = rows.active_key(self.role)
        active = read(key)
        changes: Changes = [(rows.key(self.kid), derived(KeyRow, self, state=self.STATE, records=(index,)))]
        return [*changes, (key, None)] if active is not None and active.kid == self.kid else changes


class KeyRetired(_KeyEnded, frozen=True):
    """By a rotation."""

    TYPE: ClassVar = "key.retired"
    STATE: ClassVar = "retired"


class KeyRevoked(_KeyEnded, frozen=True):
    """Because it is no longer trusted."""

    TYPE: ClassVar = "key.revoked"
    STATE: ClassVar = "revoked"


class DaemonStarted(Life, Body, frozen=True):
    """A life of the daemon begins."""

    TYPE: ClassVar = "daemon.started"
    WRITES: ClassVar = ("daemon",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """The last one."""
        return [(rows.daemon(), derived(DaemonRow, self, at=record.at, records=(index,)))]


class DaemonStopped(Body, frozen=True):
    """It ends in order."""

    TYPE: ClassVar = "daemon.stopped"

    incarnation: Number


class StorePruned(Erased, Body, frozen=True):
    """Payloads were erased."""

    TYPE: ClassVar = "store.pruned"
    WRITES: ClassVar = ("pruned",)

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """How far."""
        return [(rows.pruned(self.what), derived(PrunedRow, self, at=record.at, records=(index,)))]


class StoreRestored(Body, frozen=True):
    """The ledger goes on from a copy. Nothing writes it yet."""

    TYPE: ClassVar = "store.restored"


class AuthzDecided(WithDecision, frozen=True, kw_only=True):
    """What stage 0 decided: may that principal call that method, and which rows may it see."""

    TYPE: ClassVar = "authz.decided"

    principal: str
    method: str
    allow: bool
    view_sha256: str
