"""DSSE v1.0.2: a signature over the length-framed payload type and payload (PAE), never over bare bytes.

kblockd writes and reads a strict form with exactly one signature, which always has a key id. Source: the DSSE
protocol, version 1.0.2; kblockd/evidence/README.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from kblockd.domain.canonical import NotCanonical, parse
from kblockd.domain.signing import Signer
from kblockd.domain.text import own
from kblockd.evidence.errors import BadEnvelope, BadSignature, UnknownKey

STATEMENT_TYPE: Final = "application/vnd.in-toto+json"
JWKS_TYPE: Final = "application/jwk-set+json"
MAX_BYTES: Final = 1 << 20
SIGNATURE_BYTES: Final = 64

FindKey = Callable[[str], bytes | None]
"""The raw 32 bytes of a public key by its key id, or None."""


@dataclass(frozen=True, slots=True)
class DsseEnvelope:
    """A parsed envelope; nothing in it is trusted before ``verify``."""

    payload_type: str
    payload: bytes
    key_id: str
    signature: bytes


def pae(payload_type: str, payload: bytes) -> bytes:
    """The pre-authentication encoding, which is signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload_type: str, payload: bytes, signer: Signer) -> bytes:
    """The envelope's JCS bytes; raises OSError if the key cannot be used."""
    return own(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [
                {"keyid": signer.key_id, "sig": base64.b64encode(signer.sign(pae(payload_type, payload))).decode()}
            ],
        }
    )


def read(envelope: bytes) -> DsseEnvelope:
    """Strict: exactly the members of the standard, one signature, canonical base64. Raises ``BadEnvelope``."""
    try:
        document = parse(envelope, max_bytes=MAX_BYTES)
    except NotCanonical as error:
        raise BadEnvelope(f"the envelope is not strict JSON: {error}") from None
    _members(document, {"payload", "payloadType", "signatures"}, "the envelope")
    signatures = document["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise BadEnvelope("signatures must hold exactly one")
    _members(signatures[0], {"keyid", "sig"}, "the signature")
    kind, key_id = document["payloadType"], signatures[0]["keyid"]
    if not isinstance(kind, str) or not isinstance(key_id, str) or not key_id:
        raise BadEnvelope("payloadType and keyid must be text")
    signature = _base64(signatures[0]["sig"], "sig")
    if len(signature) != SIGNATURE_BYTES:
        raise BadEnvelope(f"sig has {len(signature)} bytes instead of the {SIGNATURE_BYTES} of Ed25519")
    return DsseEnvelope(kind, _base64(document["payload"], "payload"), key_id, signature)


def verify(envelope: bytes, payload_type: str, find: FindKey) -> DsseEnvelope:
    """The envelope, with a verified signature; raises ``BadEnvelope``, ``UnknownKey`` or ``BadSignature``."""
    parsed = read(envelope)
    if parsed.payload_type != payload_type:
        raise BadEnvelope(f"payloadType is {parsed.payload_type[:64]!r}, expected {payload_type!r}")
    key = find(parsed.key_id)
    if key is None:
        raise UnknownKey(f"no key {parsed.key_id[:64]!r} in the key set")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(parsed.signature, pae(payload_type, parsed.payload))
    except InvalidSignature:
        raise BadSignature(f"the signature by {parsed.key_id} does not fit") from None
    return parsed


def _members(value: Any, names: set[str], what: str) -> None:
    if not isinstance(value, dict) or set(value) != names:
        raise BadEnvelope(f"{what} must hold exactly {', '.join(sorted(names))}")


def _base64(text: Any, name: str) -> bytes:
    """Only canonical base64 (standard alphabet, padding, no stray bits), so that each value has one encoding."""
    if not isinstance(text, str):
        raise BadEnvelope(f"{name} must be text")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEnvelope(f"{name} is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise BadEnvelope(f"{name} is not canonical base64")
    return data
