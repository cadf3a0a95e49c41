"""JSON Web Signatures in compact form (RFC 7515), verified with a configured key by PyJWT.

The key decides the algorithm (RFC 8725, section 3.1): the token's header only has to agree. Neither ``none`` nor HMAC
is supported: whoever can verify with a shared secret can sign with it. Header and claims are parsed here, strictly,
because PyJWT accepts duplicate keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt import InvalidTokenError, PyJWS

from kblockd.domain.canonical import NotCanonical, parse

Algorithm = Literal["ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"]
"""Of those that OPA signs with. EdDSA is Ed25519."""

ALGORITHMS: Final[tuple[str, ...]] = get_args(Algorithm)
MIN_RSA_BITS: Final = 2048
MAX_TOKEN: Final = 1 << 20

_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class BadToken(Exception):
    """Not a token of this format; the message says why."""


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
        try:
            PyJWS([self.algorithm]).decode_complete(token.text, self.public, algorithms=[self.algorithm])
        except InvalidTokenError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Token:
    """The contents of a token; unproved until ``VerificationKey.verify`` returns True."""

    text: str
    algorithm: str
    key: str
    claims: Mapping[str, Any]

    @classmethod
    def read(cls, text: str) -> Token:
        """Raises ``BadToken``. ``key`` is that of the header, or of the claim ``keyid``, or empty."""
        parts = text.split(".")
        if len(parts) != 3 or len(text) > MAX_TOKEN:
            raise BadToken(f"not a compact JWS (expected three dot-separated parts, at most {MAX_TOKEN} characters)")
        header, claims, _ = _object(parts[0]), _object(parts[1]), _decoded(parts[2])
        if "crit" in header:
            raise BadToken("critical header extensions are not supported")
        algorithm, key, claimed = header.get("alg", ""), header.get("kid", ""), claims.get("keyid", "")
        if not all(isinstance(each, str) for each in (algorithm, key, claimed)):
            raise BadToken("alg, kid and keyid must be strings")
        if key and claimed and key != claimed:
            raise BadToken("kid and keyid name different keys")
        return cls(text, algorithm, key or claimed, claims)


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


def _object(part: str) -> Mapping[str, Any]:
    try:
        value: Mapping[str, Any] = parse(_decoded(part), max_bytes=MAX_TOKEN)
    except NotCanonical as error:
        raise BadToken(f"not a strict JSON object ({error})") from None
    return value


def _decoded(part: str) -> bytes:
    """Base64url without padding, in its one form."""
    try:
        decoded = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != part.encode("ascii", "replace"):
        raise BadToken("not base64url")
    return decoded
