"""What is configured becomes records with rows, so that a consumption can be conditioned on it
(kblockd/store/README.md#commits).

Principals, contracts, upstreams, keys and the policy in force: only what differs from its row is recorded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict, replace

from kblockd.domain.canonical import canonical, digest, sha256_hex
from kblockd.domain.clock import Clock, rfc3339
from kblockd.domain.contract import ActionContract
from kblockd.domain.ledger import Body, Record, rows
from kblockd.domain.ledger.configuration import (
    ContractActivated,
    DaemonStarted,
    DaemonStopped,
    KeyAdded,
    KeyRetired,
    PolicyActivated,
    PolicyRefused,
    PrincipalChanged,
    UpstreamActivated,
)
from kblockd.domain.ledger.moves import derived
from kblockd.domain.ledger.rows import PrincipalRow
from kblockd.domain.principal import Principal
from kblockd.evidence.ceremony import signing_key
from kblockd.evidence.keyring import KeyRing
from kblockd.policy.bundle import Origin
from kblockd.store.protocol import Append, Payload, Store, Ticket
from kblockd.upstream.model import UpstreamConfig


@dataclass(frozen=True, slots=True)
class Activation:
    """Writes activations into one ledger."""

    store: Store
    clock: Clock

    async def principals(self, configured: Mapping[str, Principal]) -> None:
        """Each as configured; one that is gone from the configuration is disabled."""
        for principal in configured.values():
            await self._record(rows.principal(principal.id), principal_body(principal))
        for _, _, row in await self.store.scan(rows.under(PrincipalRow, "principal")):
            if row.id not in configured and not row.disabled:
                disabled = replace(derived(PrincipalChanged, row), disabled=True)
                await self._record(rows.principal(row.id), disabled)

    async def contracts(self, configured: Mapping[tuple[str, str], ActionContract]) -> None:
        """With their documents as payloads, so that an execution can be judged by what it agreed to."""
        for (operation, environment), contract in configured.items():
            body = ContractActivated(operation, environment, contract.version, contract.sha256)
            document = Payload(rows.payload("contract", contract.sha256), canonical(contract.document))
            await self._record(rows.contract(operation, environment), body, payload=document)

    async def upstreams(self, configured: Mapping[str, UpstreamConfig]) -> None:
        """By digest: adapter, address, pins and the names of credentials are part of it, secrets are not."""
        for name, config in configured.items():
            document = digest(_strings(config.model_dump(mode="json")))
            body = UpstreamActivated(name, config.adapter, str(config.origin), document)
            await self._record(rows.upstream(name), body)

    async def keys(self, ring: KeyRing) -> None:
        """Each key of the set and its range, and the effect secret by its public half; ``signing_keys`` has found that
        they may be recorded."""
        for key in ring.keyset.keys:
            on_record = signing_key(key, ring.keyset_envelope)
            body = derived(KeyAdded, on_record) if key.to_index is None else derived(KeyRetired, on_record)
            await self._record(rows.key(key.kid), body, aux=ring.keyset_envelope)
        await self._record(rows.key(ring.effect.key_id), derived(KeyAdded, ring.effect.signing_key()))

    async def policy(self, revision: str, engine: str, tests: int, document: bytes, origin: Origin) -> None:
        """Before the engine swaps: what decides, and who signed it, stands before whatever it decides.

        Ordered when it returns, without a turn of the loop in between: the engine swaps at once, so that no call meets
        a revision on record that does not answer yet. The log keeps the order, so what the revision decided is durable
        only when this is; ``Store.get`` waits for that.
        """
        kept, named = sha256_hex(document), origin.on_record()
        body = PolicyActivated(
            revision=revision,
            engine=engine,
            tests=tests,
            bundle_sha256=kept,
            bundle_revision=named.bundle_revision,
            signer=named.signer,
            signature_scope=named.signature_scope,
        )
        await self._order(rows.policy(), body, payload=Payload(rows.payload("policy", kept), document))

    async def policy_refused(self, revision: str, faults: int) -> None:
        """A bundle that did not replace the one in force."""
        await self._append(PolicyRefused(revision, faults))

    async def started(self, incarnation: int, instance: str, version: str, *, clean: bool) -> None:
        """A new life of the daemon; ``clean`` says how the last one ended."""
        await self._append(DaemonStarted(incarnation, instance, version, clean))

    async def stopped(self, incarnation: int) -> None:
        """The orderly end of a life."""
        await self._append(DaemonStopped(incarnation))

    async def _record(
        self, key: rows.RowKey[rows.Row], body: Body, *, payload: Payload | None = None, aux: bytes = b""
    ) -> None:
        if ticket := await self._order(key, body, payload=payload, aux=aux):
            await ticket.durable()

    async def _order(
        self, key: rows.RowKey[rows.Row], body: Body, *, payload: Payload | None = None, aux: bytes = b""
    ) -> Ticket | None:
        """None when it stands there already."""
        found = await self.store.get(key)
        if found is not None and _stands(body, found[1]):
            return None
        return await self._commit(body, payload=payload, aux=aux)

    async def _append(self, body: Body) -> None:
        ticket = await self._commit(body)
        await ticket.durable()

    async def _commit(self, body: Body, *, payload: Payload | None = None, aux: bytes = b"") -> Ticket:
        leaf = Record(body, rfc3339(self.clock.now())).leaf()
        return await self.store.commit([], [Append(leaf, aux)], [payload] if payload else [])


def _stands(body: Body, row: rows.Row) -> bool:
    """Whether the row says already whatever the body says."""
    return all(getattr(row, name) == said for name, said in asdict(body).items() if said is not UNSET)


def principal_body(principal: Principal) -> PrincipalChanged:
    """The record of one active principal."""
    return PrincipalChanged(
        id=principal.id,
        kind=principal.kind,
        tenant=principal.tenant,
        owner=principal.owner,
        roles=tuple(principal.roles),
        organization=principal.organization,
        disabled=False,
    )


def _strings(value: Any) -> Any:
    """Floats have no place in our digests; the configuration's are written as text."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: _strings(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_strings(member) for member in value]
    return value
