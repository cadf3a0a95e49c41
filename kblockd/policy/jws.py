"""JSON Web Signatures in compact form (RFC 7515), verified with a key that the configuration names.

The key decides which algorithm is used (RFC 8725, section 3.1): what the token says of itself only has to agree. There
is neither ``none`` nor HMAC: whoever can verify with a shared secret can sign with it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from kblockd.domain.canonical import NotCanonical, parse

Algorithm = Literal["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"]
"""Of those that OPA signs with. EdDSA is Ed25519."""

ALGORITHMS: Final[tuple[str, ...]] = get_args(Algorithm)
MIN_RSA_BITS: Final = 2048
MAX_TOKEN: Final = 1 << 20

_HASHES: Final[Mapping[str, HashAlgorithm]] = {"256": SHA256(), "384": SHA384(), "512": SHA512()}
_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class BadToken(Exception):
    """A token that says nothing that can be believed; the message says why."""


class BadKey(Exception):
    """A public key that cannot verify what it is configured for; the message never quotes the file."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """``id`` is the name that signers use and that the ledger records; ``algorithm`` is the only one it verifies."""

    id: str
    algorithm: str
    public: PublicKey = field(repr=False)

    @classmethod
    def from_pem(cls, name: str, algorithm: str, pem: bytes) -> VerificationKey:
        """Raises ``BadKey``."""
        if b"PRIVATE KEY" in pem:
            raise BadKey("holds a private key: only its public half belongs on this machine (openssl pkey -pubout)")
        try:
            public = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise BadKey("holds no public key in PEM") from None
        return cls(name, algorithm, _fitting(algorithm, public))

    def verify(self, token: Token) -> bool:
        """Whether this key signed it, with its own algorithm."""
        if token.algorithm != self.algorithm:
            return False
        try:
            self._verify(token.signed, token.signature)
        except InvalidSignature:
            return False
        return True

    def _verify(self, signed: bytes, signature: bytes) -> None:
        match self.public:
            case ed25519.Ed25519PublicKey():
                self.public.verify(signature, signed)
            case ec.EllipticCurvePublicKey():
                self.public.verify(_der(signature, self.public.key_size), signed, ec.ECDSA(self._hash()))
            case rsa.RSAPublicKey():
                used = self._hash()
                pss = padding.PSS(padding.MGF1(used), used.digest_size)
                self.public.verify(signature, signed, pss if self.algorithm[0] == "P" else padding.PKCS1v15(), used)

    def _hash(self) -> HashAlgorithm:
        return _HASHES[self.algorithm[2:]]


@dataclass(frozen=True, slots=True)
class Token:
    """What stands in a token; to be believed once ``VerificationKey.verify`` said yes."""

    algorithm: str
    key: str
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes

    @classmethod
    def read(cls, text: str) -> Token:
        """Raises ``BadToken``. ``key`` is that of the header, or of the claim ``keyid``, or empty."""
        parts = text.split(".")
        if len(parts) != 3 or len(text) > MAX_TOKEN:
            raise BadToken("it has not the three parts of a signature")
        header, claims = _object(parts[0]), _object(parts[1])
        if "crit" in header:
            raise BadToken("its header has critical extensions")
        algorithm, key, claimed = header.get("alg", ""), header.get("kid", ""), claims.get("keyid", "")
        if not all(isinstance(each, str) for each in (algorithm, key, claimed)):
            raise BadToken("it does not name its algorithm and its key as texts")
        if key and claimed and key != claimed:
            raise BadToken("it names two keys")
        signed = f"{parts[0]}.{parts[1]}".encode("ascii")
        return cls(algorithm, key or claimed, claims, signed, _decoded(parts[2]))


def _fitting(algorithm: str, public: object) -> PublicKey:
    match public:
        case rsa.RSAPublicKey() if algorithm[:2] in ("RS", "PS"):
            if public.key_size < MIN_RSA_BITS:
                raise BadKey(f"holds an RSA key of {public.key_size} bits, at least {MIN_RSA_BITS} are needed")
            return public
        case ec.EllipticCurvePublicKey() if public.curve.name == _CURVES.get(algorithm):
            return public
        case ed25519.Ed25519PublicKey() if algorithm == "EdDSA":
            return public
    raise BadKey(f"holds a key that cannot verify {algorithm}")


def _der(signature: bytes, bits: int) -> bytes:
    """RFC 7518 section 3.4: both numbers with the length of the field, one behind the other."""
    size = (bits + 7) // 8
    if len(signature) != 2 * size:
        raise InvalidSignature
    return encode_dss_signature(int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))


def _object(part: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = parse(_decoded(part), max_bytes=MAX_TOKEN)
    except NotCanonical as error:
        raise BadToken(f"it holds no strict JSON object ({error})") from None
    return found


def _decoded(part: str) -> bytes:
    """Base64url without padding, in its one form."""
    try:
        found = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if base64.urlsafe_b64encode(found).rstrip(b"=") != part.encode("ascii", "replace"):
        raise BadToken("a part of it is not base64url")
    return found
