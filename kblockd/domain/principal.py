"""Who calls: an authenticated principal and the person or team that owns it (separation of duties compares owners)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """From the daemon's configuration, never from a request (R010, R011, APR-08)."""

    id: str
    kind: str  # agent | person | service
    tenant: str  # "*" for operators of all tenants
    owner: str
    roles: tuple[str, ...] = ()
    organization: str = ""

    def document(self) -> dict[str, object]:
        """What policies see."""
        return {
            "id": self.id,
            "kind": self.kind,
            "tenant": self.tenant,
            "owner": self.owner,
            "roles": list(self.roles),
        }


@dataclass(frozen=True, slots=True)
class View:
    """The filter that code applies to every row that is listed, read or watched (kblockd/rpc/README.md#who-calls)."""

    tenants: frozenset[str]
    agents: frozenset[str]

    def shows(self, tenant: str, agent: str) -> bool:
        """Whether a row of this tenant and agent may be seen; ``*`` stands for all."""
        return ("*" in self.tenants or tenant in self.tenants) and ("*" in self.agents or agent in self.agents)
