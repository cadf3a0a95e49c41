"""The keys on disk are those that the ledger calls active, or their successors by a rotation that the same root signed.

A seal is conditioned on the active key's row, so with other keys an effect would be done and could not be sealed.
Asked at the start, before anything is recorded or served, and again at stage 5, before anything is consumed.
Source: kblockd/evidence/README.md#keys; RCP-08; case LOC-04.
"""

from __future__ import annotations

from collections.abc import Mapping

from kblockd.domain.errors import FailedPrecondition, Left, Reason
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import KeyRow
from kblockd.evidence import effect_secret
from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.jwks import KeySet, PublicKey, Role
from kblockd.evidence.keyring import KeyRing, open_keyset
from kblockd.store.protocol import AtVersion, Condition, Store

_RESTORE = "put the keys of this ledger back into keys/, or give the daemon the data_dir that these keys belong to"


class KeyMismatch(Exception):
    """The result key on disk is not the ledger's active one; the text has both ids."""


async def check_keys(store: Store, ring: KeyRing) -> None:
    """For the start; raises ``KeysRefused`` with the id on disk and the ledger's. An empty ledger takes any keys."""
    known = {
        row.kid: row for _, _, row in await store.scan(rows.under(KeyRow, "key")) if row.role != effect_secret.ROLE
    }
    if known:
        await _check_succession(store, ring, known)
    await _check_effect_secret(store, ring)
    for role in Role:
        active = ring.keyset.active(role)
        if active.from_index > store.size():
            raise KeysRefused(
                f"the {role} key {active.kid} is valid from record {active.from_index} on, and the ledger has "
                f"{store.size()}: what it signs now would not verify; rotate with from_index {store.size()}"
            )


async def _check_effect_secret(store: Store, ring: KeyRing) -> None:
    """Another one would make a second deed of every call that is repeated after a restore (EVI-15)."""
    found = await store.get(rows.active_key(effect_secret.ROLE))
    if found is not None and found[1].kid != ring.effect.key_id:
        raise KeysRefused(
            f"the effect secret on disk is {ring.effect.key_id}, this ledger's is {found[1].kid}; {_RESTORE}"
        )


async def _check_succession(store: Store, ring: KeyRing, known: Mapping[str, KeyRow]) -> None:
    """The key set on disk is the one that the ledger recorded last, or continues it."""
    recorded = await _recorded(store, ring, known)
    if recorded is None:
        raise await _refusal(store, ring, "the root on disk did not sign the key set that the ledger holds")
    fresh = ring.keyset
    if fresh.version < recorded.version:
        why = f"an older key set came back: version {fresh.version} on disk, {recorded.version} in the ledger"
        raise await _refusal(store, ring, why)
    if fresh.version == recorded.version and fresh.payload() != recorded.payload():
        raise await _refusal(store, ring, f"two different key sets have version {fresh.version}")
    for key in recorded.keys:
        if not _continues(key, fresh):
            raise await _refusal(store, ring, f"the key set on disk takes back what the ledger says of key {key.kid}")
    for role in Role:
        kid = ring.signer(role).key_id
        if (on_record := known.get(kid)) is not None and on_record.state != "active":
            raise await _refusal(store, ring, f"the {role} key {kid} is {on_record.state} in the ledger")


async def _recorded(store: Store, ring: KeyRing, known: Mapping[str, KeyRow]) -> KeySet | None:
    """The key set beside the newest record of a key; None when the root on disk did not sign it."""
    newest = max(row.records[-1] for row in known.values())
    record = await store.leaf(newest)
    try:
        return open_keyset(record.aux if record else b"", ring.root_public_key)
    except KeysRefused:
        return None


def _continues(key: PublicKey, fresh: KeySet) -> bool:
    """It is still there, as it was or ended earlier: an end is never taken back."""
    for one in fresh.keys:
        if one.kid == key.kid:
            same = (one.role, one.from_index) == (key.role, key.from_index)
            return same and (key.to_index is None or (one.to_index is not None and one.to_index <= key.to_index))
    return False


async def _refusal(store: Store, ring: KeyRing, why: str) -> KeysRefused:
    """Names both ids of each role in which disk and ledger differ."""
    differing = []
    for role in Role:
        found = await store.get(rows.active_key(str(role)))
        active, on_disk = (found[1].kid if found else "none"), ring.signer(role).key_id
        if active != on_disk:
            differing.append(f"{role} key on disk {on_disk}, active in the ledger {active}")
    return KeysRefused("; ".join([why, *differing, _RESTORE]))


async def seal_condition(store: Store, ring: KeyRing) -> Condition:
    """That the key on disk stays the one that seals; raises ``KeyMismatch``."""
    key = rows.active_key(str(Role.RESULT))
    found = await store.get(key)
    active, on_disk = (found[1].kid if found else "none"), ring.result.key_id
    if found is None or active != on_disk:
        raise KeyMismatch(f"the result key on disk is {on_disk}, the ledger's active one is {active}")
    return AtVersion(key, found[0])


async def check_sealable(store: Store, ring: KeyRing, execution_id: str) -> list[Condition]:
    """Stage 5: the end of this action could be sealed. Raises ``FailedPrecondition``."""
    try:
        return [await seal_condition(store, ring)]
    except KeyMismatch as mismatch:
        raise FailedPrecondition(
            Reason.PREFLIGHT_FAILED,
            f"{mismatch}, so no result could be sealed.",
            Left.APPROVED,
            next_step="tell the operator to restore the key folder and to restart the daemon; then repeat the call",
            execution_id=execution_id,
        ) from None
