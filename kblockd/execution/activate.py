"""What is configured becomes records with rows, so that a consumption can be conditioned on it
(kblockd/store/README.md#commits).

Principals, contracts, upstreams, keys and the policy in force: only what differs from its row is recorded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kblockd.domain import rows
from kblockd.domain.canonical import canonical, digest, sha256_hex
from kblockd.domain.clock import Clock, rfc3339
from kblockd.domain.contract import ActionContract
from kblockd.domain.principal import Principal
from kblockd.domain.records import Record, RecordType
from kblockd.evidence.ceremony import record_body
from kblockd.evidence.keyring import KeyRing
from kblockd.policy.bundles.bundle import Origin
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
            await self._record(RecordType.PRINCIPAL_CHANGED, rows.principal(principal.id), principal_body(principal))
        for _, _, row in await self.store.scan(("principal",)):
            if row["id"] not in configured and not row["disabled"]:
                body = {k: v for k, v in row.items() if k not in ("records", "at")}
                await self._record(RecordType.PRINCIPAL_CHANGED, rows.principal(row["id"]), {**body, "disabled": True})

    async def contracts(self, configured: Mapping[tuple[str, str], ActionContract]) -> None:
        """With their documents as payloads, so that an execution can be judged by what it agreed to."""
        for (operation, environment), contract in configured.items():
            body = {
                "operation": operation,
                "environment": environment,
                "version": contract.version,
                "contract_sha256": contract.sha256,
            }
            document = Payload(rows.payload("contract", contract.sha256), canonical(contract.document))
            key = rows.contract(operation, environment)
            await self._record(RecordType.CONTRACT_ACTIVATED, key, body, payload=document)

    async def upstreams(self, configured: Mapping[str, UpstreamConfig]) -> None:
        """By digest: adapter, address, pins and the names of credentials are part of it, secrets are not."""
        for name, config in configured.items():
            document = config.model_dump(mode="json")
            body = {
                "name": name,
                "adapter": config.adapter,
                "origin": str(config.origin),
                "config_sha256": digest(_strings(document)),
            }
            await self._record(RecordType.UPSTREAM_ACTIVATED, rows.upstream(name), body)

    async def keys(self, ring: KeyRing) -> None:
        """Each key of the set and its range, and the effect secret by its public half; ``signing_keys`` has found that
        they may be recorded."""
        for key in ring.keyset.keys:
            ended = key.to_index is not None
            type_ = RecordType.KEY_RETIRED if ended else RecordType.KEY_ADDED
            body = record_body(key, ring.keyset_envelope)
            await self._record(type_, rows.key(key.kid), body, aux=ring.keyset_envelope)
        await self._record(RecordType.KEY_ADDED, rows.key(ring.effect.key_id), ring.effect.record_body())

    async def policy(self, revision: str, engine: str, tests: int, document: bytes, origin: Origin) -> None:
        """Before the engine swaps: what decides, and who signed it, stands before whatever it decides.

        Ordered when it returns, without a turn of the loop in between: the engine swaps at once, so that no call meets
        a revision on record that does not answer yet. The log keeps the order, so what the revision decided is durable
        only when this is; ``Store.get`` waits for that.
        """
        kept = sha256_hex(document)
        body = {"revision": revision, "engine": engine, "tests": tests, "bundle_sha256": kept, **origin.to_body()}
        payload = Payload(rows.payload("policy", kept), document)
        await self._order(RecordType.POLICY_ACTIVATED, rows.policy(), body, payload=payload)

    async def policy_refused(self, revision: str, faults: int) -> None:
        """A bundle that did not replace the one in force."""
        await self._append(RecordType.POLICY_REFUSED, {"revision": revision, "faults": faults})

    async def started(self, incarnation: int, instance: str, version: str, *, clean: bool) -> None:
        """A new life of the daemon; ``clean`` says how the last one ended."""
        body = {"incarnation": incarnation, "instance": instance, "version": version, "after_clean_stop": clean}
        await self._append(RecordType.DAEMON_STARTED, body)

    async def stopped(self, incarnation: int) -> None:
        """The orderly end of a life."""
        await self._append(RecordType.DAEMON_STOPPED, {"incarnation": incarnation})

    async def _record(
        self,
        type_: RecordType,
        key: rows.Key,
        body: Mapping[str, Any],
        *,
        payload: Payload | None = None,
        aux: bytes = b"",
    ) -> None:
        if ticket := await self._order(type_, key, body, payload=payload, aux=aux):
            await ticket.durable()

    async def _order(
        self,
        type_: RecordType,
        key: rows.Key,
        body: Mapping[str, Any],
        *,
        payload: Payload | None = None,
        aux: bytes = b"",
    ) -> Ticket | None:
        """None when it stands there already."""
        found = await self.store.get(key)
        if found is not None and all(found[1].get(name) == value for name, value in body.items()):
            return None
        return await self._commit(type_, body, payload=payload, aux=aux)

    async def _append(self, type_: RecordType, body: Mapping[str, Any]) -> None:
        ticket = await self._commit(type_, body)
        await ticket.durable()

    async def _commit(
        self, type_: RecordType, body: Mapping[str, Any], *, payload: Payload | None = None, aux: bytes = b""
    ) -> Ticket:
        leaf = Record(type_, rfc3339(self.clock.now()), body=body).leaf()
        return await self.store.commit([], [Append(leaf, aux)], [payload] if payload else [])


def principal_body(principal: Principal) -> dict[str, Any]:
    """The record of one active principal."""
    return {
        "id": principal.id,
        "kind": principal.kind,
        "tenant": principal.tenant,
        "owner": principal.owner,
        "roles": list(principal.roles),
        "organization": principal.organization,
        "disabled": False,
    }


def _strings(value: Any) -> Any:
    """Floats have no place in our digests; the configuration's are written as text."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: _strings(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_strings(member) for member in value]
    return value
