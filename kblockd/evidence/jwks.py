"""The public keys: a JWKS whose members carry a role and the range of ledger indexes in which they are valid.

No ``alg`` member (some libraries refuse ``Ed25519``, others ``EdDSA``); ``kid`` is the RFC 7638 thumbprint. Validity
goes by index, not by time, so that old receipts keep verifying and a stolen key cannot backdate anything to before a
witnessed checkpoint (RCP-08). Source: RFC 7517, 7638, 8037; kblockd/evidence/README.md#keys.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from kblockd.domain.canonical import NotCanonical, canonical, parse
from kblockd.evidence.errors import KeyNotValid, KeysRefused, UnknownKey

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,19}")


class Role(enum.StrEnum):
    """What a key may sign. One public key never has two roles."""

    RESULT = "result"  # RESULT, RECEIPT, DISPOSITION
    LOG = "log"  # checkpoints
    APPROVAL = "approval"  # approvals that the daemon signs for an authenticated approver


def thumbprint(raw: bytes) -> str:
    """RFC 7638 over the required members of an Ed25519 JWK (RFC 8037), base64url without padding."""
    required = canonical({"crv": "Ed25519", "kty": "OKP", "x": _url(raw)})
    return _url(hashlib.sha256(required).digest())


@dataclass(frozen=True, slots=True)
class PublicKey:
    """32 raw bytes, a role and the inclusive range of ledger indexes; ``to_index`` is None while the key is active."""

    role: Role
    raw: bytes
    from_index: int
    to_index: int | None = None
    kid: str = field(init=False)

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise KeysRefused("an Ed25519 public key has 32 bytes")
        if self.from_index < 0 or (self.to_index is not None and self.to_index < self.from_index):
            raise KeysRefused(f"a key cannot be valid from {self.from_index} to {self.to_index}")
        object.__setattr__(self, "kid", thumbprint(self.raw))

    def covers(self, index: int) -> bool:
        """Whether the key is valid for this ledger index."""
        return self.from_index <= index and (self.to_index is None or index <= self.to_index)

    def jwk(self) -> dict[str, str]:
        """The key's member of the JWKS."""
        member = {
            "crv": "Ed25519",
            "fromIndex": str(self.from_index),
            "kid": self.kid,
            "kty": "OKP",
            "role": str(self.role),
            "use": "sig",
            "x": _url(self.raw),
        }
        return member if self.to_index is None else {**member, "toIndex": str(self.to_index)}


@dataclass(frozen=True, slots=True)
class KeySet:
    """All keys that have ever been valid; ``version`` increases with each ceremony."""

    version: int
    keys: tuple[PublicKey, ...]

    def __post_init__(self) -> None:
        if len({key.raw for key in self.keys}) != len(self.keys):
            raise KeysRefused("a public key appears twice in the key set; each has one role and one range")
        for role in Role:
            _check_ranges(role, [key for key in self.keys if key.role is role])

    def raw(self, kid: str) -> bytes | None:
        """The public key with this id, regardless of role and range; for ``dsse.verify``."""
        return next((key.raw for key in self.keys if key.kid == kid), None)

    def active(self, role: Role) -> PublicKey:
        """The current signing key; raises ``KeyNotValid`` if the role has none."""
        for key in self.keys:
            if key.role is role and key.to_index is None:
                return key
        raise KeyNotValid(f"no active {role} key")

    def valid(self, kid: str, role: Role, index: int) -> PublicKey:
        """The key, if it has the role and covers the index; raises ``UnknownKey`` or ``KeyNotValid``."""
        for key in self.keys:
            if key.kid != kid:
                continue
            if key.role is not role:
                raise KeyNotValid(f"{kid} has the role {key.role}, not {role}")
            if not key.covers(index):
                end = "now" if key.to_index is None else key.to_index
                raise KeyNotValid(f"{kid} is valid from {key.from_index} to {end}, not at index {index}")
            return key
        raise UnknownKey(f"no key {kid[:64]!r} in the key set")

    def payload(self) -> bytes:
        """JCS bytes of the JWKS, which the root signs."""
        return canonical({"keys": [key.jwk() for key in self.keys], "version": str(self.version)})

    @classmethod
    def read(cls, payload: bytes) -> KeySet:
        """The inverse of ``payload``, strict; raises ``KeysRefused``."""
        try:
            document = parse(payload)
        except NotCanonical as error:
            raise KeysRefused(f"the key set is not strict JSON: {error}") from None
        if set(document) != {"keys", "version"} or not isinstance(document["keys"], list):
            raise KeysRefused("a key set must hold exactly keys and version")
        keyset = cls(_index(document["version"]), tuple(_key(member) for member in document["keys"]))
        if keyset.payload() != payload:
            raise KeysRefused("the key set has unknown members, a wrong kid, or is not canonical")
        return keyset


def _check_ranges(role: Role, keys: list[PublicKey]) -> None:
    end: int | None = -1
    for key in sorted(keys, key=lambda key: key.from_index):
        if end is None or end >= key.from_index:
            raise KeysRefused(f"the ranges of two {role} keys overlap")
        end = key.to_index


def _key(member: Any) -> PublicKey:
    try:
        to_index = _index(member["toIndex"]) if "toIndex" in member else None
        raw = base64.urlsafe_b64decode(member["x"] + "=")
        return PublicKey(Role(member["role"]), raw, _index(member["fromIndex"]), to_index)
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        raise KeysRefused("a member of the key set is not an Ed25519 key with role, fromIndex and x") from None


def _index(text: Any) -> int:
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise KeysRefused("an index or version of the key set is not a decimal integer as text")
    return int(text)


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
