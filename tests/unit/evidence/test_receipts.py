"""Statements signed by the right role, and opened only at an index where the key was valid."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace

import pytest

from kblockd.domain.signing import Signer
from kblockd.evidence import dsse
from kblockd.evidence.ceremony import add_key, retire
from kblockd.evidence.errors import BadStatement, KeyNotValid, UnknownKey
from kblockd.evidence.jwks import KeySet, Role
from kblockd.evidence.keyring import open_keyset
from kblockd.evidence.keys import LocalSigner
from kblockd.evidence.receipts import (
    open_statement,
    sign_approval,
    sign_disposition,
    sign_receipt,
    sign_result,
    sign_statement,
)
from kblockd.evidence.statements import Approval, Disposition, Receipt, Result, SignedBy, payload
from tests.unit.evidence import samples
from tests.unit.evidence.samples import World


def test_each_kind_is_signed_by_its_role_and_opened_again(world: World) -> None:
    """R468: signed with the service's own key; R473: the approval's signature can be checked before consumption."""
    ring = world.ring
    approval, disposition = samples.approval(), samples.disposition()
    assert sign_result(samples.result(), ring).key_id == ring.result.key_id
    assert sign_receipt(samples.receipt(world.result), ring).key_id == ring.result.key_id
    assert sign_disposition(disposition, ring).key_id == ring.result.key_id
    assert sign_approval(approval, ring).key_id == ring.approval.key_id
    assert open_statement(world.result.envelope, Result, ring.keyset, index=6) == samples.result()
    assert open_statement(sign_approval(approval, ring).envelope, Approval, ring.keyset, index=2) == approval
    assert (
        open_statement(sign_disposition(disposition, ring).envelope, Disposition, ring.keyset, index=9) == disposition
    )


def test_signed_carries_payload_digest_and_envelope(world: World) -> None:
    signed = world.receipt
    assert signed.payload == payload(samples.receipt(world.result))
    assert signed.sha256 == hashlib.sha256(signed.payload).hexdigest()
    assert dsse.read(signed.envelope).payload == signed.payload


class Counting:
    """A key that is used elsewhere than in memory."""

    def __init__(self, local: Signer, *, works: bool = True) -> None:
        self.key_id, self.public_key = local.key_id, local.public_key
        self._local, self._works = local, works
        self.used = 0

    def sign(self, message: bytes) -> bytes:
        self.used += 1
        if not self._works:
            raise OSError("unreachable")
        return self._local.sign(message)


def test_a_key_that_can_fail_signs_before_anything_is_ordered(world: World) -> None:
    """One in memory signs when the envelope is asked for, once."""
    signer = Counting(world.ring.result)
    signed = sign_statement(samples.result(), signer)
    assert signer.used == 1
    assert signed.sign() == signed.envelope == world.result.envelope
    assert signer.used == 1
    with pytest.raises(OSError, match="unreachable"):
        sign_statement(samples.result(), Counting(world.ring.result, works=False))


def test_a_key_in_memory_signs_in_whichever_thread_asks_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = world.result.envelope
    used: list[str] = []
    real = LocalSigner.sign

    def sign(self: LocalSigner, message: bytes) -> bytes:
        used.append(threading.current_thread().name)
        return real(self, message)

    monkeypatch.setattr(LocalSigner, "sign", sign)
    signed = sign_statement(samples.result(), world.ring.result)
    assert used == []
    thread = threading.Thread(target=signed.sign, name="writer")
    thread.start()
    thread.join()
    assert signed.envelope == expected
    assert used == ["writer"]


def test_a_wrong_role_is_refused_although_the_signature_fits(world: World) -> None:
    for role in (Role.LOG, Role.APPROVAL):
        signed = sign_statement(samples.result(), world.ring.signer(role))
        with pytest.raises(KeyNotValid, match="not result"):
            open_statement(signed.envelope, Result, world.ring.keyset, index=6)
    signed = sign_statement(samples.approval(), world.ring.result)
    with pytest.raises(KeyNotValid, match="not approval"):
        open_statement(signed.envelope, Approval, world.ring.keyset, index=6)


def test_the_daemon_does_not_sign_for_an_approver_with_a_key(world: World) -> None:
    with pytest.raises(ValueError, match="the daemon cannot sign"):
        sign_approval(replace(samples.approval(), signed_by=SignedBy.APPROVER), world.ring)


def test_another_kind_is_refused_although_the_signature_fits(world: World) -> None:
    with pytest.raises(BadStatement):
        open_statement(world.receipt.envelope, Result, world.ring.keyset, index=6)


def test_rcp_08_old_receipts_keep_verifying_after_a_rotation(world: World) -> None:
    change = add_key(world.folder, world.root_file, Role.RESULT, from_index=7)
    found = open_statement(world.receipt.envelope, Receipt, change.keyset, index=world.index)
    assert found == samples.receipt(world.result)
    late = sign_receipt(samples.receipt(world.result), world.reloaded().ring)
    open_statement(late.envelope, Receipt, change.keyset, index=7)
    for envelope, index in ((world.receipt.envelope, 7), (late.envelope, 6)):  # no backdating, no late use
        with pytest.raises(KeyNotValid, match=f"not at index {index}"):
            open_statement(envelope, Receipt, change.keyset, index=index)


def test_rcp_08_a_revoked_key_ends_at_its_index(world: World) -> None:
    change = retire(world.folder, world.root_file, world.ring.result.key_id, to_index=5)
    with pytest.raises(KeyNotValid, match="not at index 6"):
        open_statement(world.receipt.envelope, Receipt, change.keyset, index=6)


def test_rcp_08_an_unknown_key_is_an_error_of_its_own(world: World) -> None:
    stranger = KeySet(1, world.ring.keyset.keys[1:])
    with pytest.raises(UnknownKey):
        open_statement(world.receipt.envelope, Receipt, stranger, index=6)


def test_rcp_11_a_disposition_binds_the_result_and_leaves_it_byte_identical(world: World) -> None:
    before = world.result.envelope
    first = sign_disposition(replace(samples.disposition(), result=world.result.sha256, previous=None), world.ring)
    second = sign_disposition(
        replace(samples.disposition(), result=world.result.sha256, previous=first.sha256), world.ring
    )
    keyset = open_keyset(world.ring.keyset_envelope, world.ring.root_public_key)
    found = open_statement(second.envelope, Disposition, keyset, index=12)
    assert (found.result, found.previous) == (world.result.sha256, first.sha256)
    assert world.result.envelope == before
    assert open_statement(before, Result, keyset, index=6) == samples.result()
