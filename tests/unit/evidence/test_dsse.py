"""DSSE, against its specification and against tools that are not ours."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from kblockd.evidence import dsse
from kblockd.evidence.errors import BadEnvelope, BadSignature, UnknownKey
from kblockd.evidence.keys import public_pem
from tests.unit.evidence.samples import World

SHELL_PAE = r"""
set -eu
jq -r .payload "$1" | base64 -d > payload
type=$(jq -r .payloadType "$1")
printf 'DSSEv1 %d %s %d ' "${#type}" "$type" "$(wc -c < payload)" > pae
cat payload >> pae
jq -r '.signatures[0].sig' "$1" | base64 -d > sig
openssl pkeyutl -verify -pubin -inkey signer.pem -rawin -in pae -sigfile sig
"""


def test_pae_equals_the_vector_of_the_specification() -> None:
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == expected
    assert dsse.pae("é", "é".encode()) == "DSSEv1 2 é 2 é".encode()  # lengths count bytes


def test_sign_then_verify_returns_the_payload_and_always_a_key_id(world: World) -> None:
    found = dsse.verify(world.result.envelope, dsse.STATEMENT_TYPE, world.ring.keyset.raw)
    assert found.payload == world.result.payload
    assert found.key_id == world.ring.result.key_id
    assert set(json.loads(world.result.envelope)["signatures"][0]) == {"keyid", "sig"}


def test_securesystemslib_verifies_what_we_sign(world: World) -> None:
    """Evidence, "Checked by tools that are not ours", 1."""
    signer = world.ring.result
    value = {"public": signer.public_key.hex()}
    key = SSlibKey(signer.key_id, "ed25519", "ed25519", value)
    for envelope in (world.result.envelope, world.receipt.envelope):
        theirs = TheirEnvelope.from_dict(json.loads(envelope))
        assert set(theirs.verify([key], 1)) == {signer.key_id}
    theirs.payload += b" "
    with pytest.raises(VerificationError):
        theirs.verify([key], 1)


@pytest.mark.skipif(shutil.which("jq") is None or shutil.which("openssl") is None, reason="jq or openssl is missing")
def test_the_openssl_binary_verifies_a_pae_rebuilt_by_the_shell(world: World, tmp_path: Path) -> None:
    """Evidence, "Checked by tools that are not ours", 1."""
    (tmp_path / "signer.pem").write_bytes(public_pem(world.ring.result.public_key))
    changed = json.loads(world.receipt.envelope)
    changed["payload"] = base64.b64encode(world.receipt.payload.replace(b"exe_1", b"exe_2")).decode()
    for envelope, status in ((world.receipt.envelope, 0), (json.dumps(changed).encode(), 1)):
        (tmp_path / "envelope.json").write_bytes(envelope)
        done = subprocess.run(["sh", "-c", SHELL_PAE, "sh", "envelope.json"], cwd=tmp_path, capture_output=True)
        assert done.returncode == status, done.stderr


def _changed(envelope: bytes, **members: object) -> bytes:
    return json.dumps({**json.loads(envelope), **members}).encode()


def test_verify_refuses_anything_but_the_strict_form(world: World) -> None:
    whole = world.result.envelope
    document = json.loads(whole)
    signature = document["signatures"][0]
    no_id = {"sig": signature["sig"]}
    forms = [
        b"",
        b"[]",
        b"null",
        whole.replace(b'"payloadType"', b'"payload":"","payloadType"', 1),  # a key twice
        _changed(whole, extra=1),
        _changed(whole, payloadType="application/json"),
        _changed(whole, payloadType=None),
        _changed(whole, payload=5),
        _changed(whole, payload=document["payload"] + "\n"),
        _changed(whole, payload=document["payload"].replace("e", "é", 1)),
        _changed(whole, signatures=[]),
        _changed(whole, signatures={}),
        _changed(whole, signatures=[signature, signature]),
        _changed(whole, signatures=[signature, {**signature, "keyid": "other"}]),
        _changed(whole, signatures=[no_id]),
        _changed(whole, signatures=[{**signature, "keyid": ""}]),
        _changed(whole, signatures=[{**signature, "keyid": None}]),
        _changed(whole, signatures=[{**signature, "extra": "x"}]),
        _changed(whole, signatures=[{**signature, "sig": signature["sig"][:-4]}]),
        _changed(whole, signatures=[{**signature, "sig": signature["sig"].rstrip("=")}]),
        json.dumps({"payload": document["payload"], "signatures": document["signatures"]}).encode(),
    ]
    for form in forms:
        with pytest.raises(BadEnvelope):
            dsse.verify(form, dsse.STATEMENT_TYPE, world.ring.keyset.raw)


def test_base64_with_stray_bits_is_refused(world: World) -> None:
    whole = dsse.sign("t", b"a", world.ring.result)
    assert b'"YQ=="' in whole
    with pytest.raises(BadEnvelope, match="canonical"):
        dsse.verify(whole.replace(b'"YQ=="', b'"YR=="'), "t", world.ring.keyset.raw)


def test_a_wrong_signature_and_an_unknown_key_are_told_apart(world: World) -> None:
    """RCP-08: an unknown key id is a verdict of its own."""
    document = json.loads(world.result.envelope)
    bits = bytearray(base64.b64decode(document["signatures"][0]["sig"]))
    bits[7] ^= 1
    document["signatures"][0]["sig"] = base64.b64encode(bits).decode()
    with pytest.raises(BadSignature):
        dsse.verify(json.dumps(document).encode(), dsse.STATEMENT_TYPE, world.ring.keyset.raw)
    with pytest.raises(UnknownKey):
        dsse.verify(world.result.envelope, dsse.STATEMENT_TYPE, lambda _: None)
    other = world.ring.log.public_key
    with pytest.raises(BadSignature):
        dsse.verify(world.result.envelope, dsse.STATEMENT_TYPE, lambda _: other)


def test_the_payload_type_is_signed(world: World) -> None:
    relabelled = _changed(world.result.envelope, payloadType=dsse.JWKS_TYPE)
    with pytest.raises(BadSignature):
        dsse.verify(relabelled, dsse.JWKS_TYPE, world.ring.keyset.raw)


def test_random_bytes_never_raise_anything_else(world: World) -> None:
    for length in range(0, 200, 7):
        with pytest.raises(BadEnvelope):
            dsse.verify(os.urandom(length), dsse.STATEMENT_TYPE, world.ring.keyset.raw)
