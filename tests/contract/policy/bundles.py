"""Bundles as others make them: archives, keys and signatures, without a line of the code under test."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kblockd.policy.bundles.jws import VerificationKey
from kblockd.policy.bundles.signatures import Trust, Unsigned
from tests.contract.policy.support import files

SIGNATURES = ".signatures.json"


@dataclass(frozen=True)
class KeyPair:
    """Of a release: ES256, RS256, PS256 or EdDSA."""

    id: str = "release"
    algorithm: str = "ES256"
    private: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def public_pem(self) -> bytes:
        return bytes(self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    @property
    def verifying(self) -> VerificationKey:
        """As the configuration loads it."""
        return VerificationKey.from_pem(self.id, self.algorithm, self.public_pem)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The private and the public half as files."""
        pem = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        private, public = folder / f"{self.id}.pem", folder / f"{self.id}.pub.pem"
        private.write_bytes(pem)
        public.write_bytes(self.public_pem)
        return private, public

    def token(self, claims: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> str:
        """With the key's id in the header, unless ``header`` says what stands there."""
        head = {"alg": self.algorithm, "kid": self.id} if header is None else header
        signed = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(claims).encode())}"
        return f"{signed}.{encoded(self._signature(signed.encode()))}"

    def _signature(self, signed: bytes) -> bytes:
        match self.private:
            case ed25519.Ed25519PrivateKey():
                return self.private.sign(signed)
            case ec.EllipticCurvePrivateKey():
                r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(SHA256())))
                return r.to_bytes(32, "big") + s.to_bytes(32, "big")
            case rsa.RSAPrivateKey():
                pss = padding.PSS(padding.MGF1(SHA256()), SHA256.digest_size)
                return self.private.sign(signed, pss if self.algorithm == "PS256" else padding.PKCS1v15(), SHA256())
        raise TypeError(self.algorithm)


def encoded(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def contents(texts: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The files of a whole bundle; documents are compact, so that OPA's digest of them is that of their bytes."""
    found = {name: text.encode() for name, text in (texts or files()).items()}
    return {".manifest": b'{"revision":"v12","roots":[""]}', "data.json": b'{"a":1}', **found}


def listing(content: Mapping[str, bytes]) -> list[dict[str, str]]:
    """``files`` of a token."""
    return [
        {"name": name, "hash": hashlib.sha256(data).hexdigest(), "algorithm": "SHA-256"}
        for name, data in content.items()
    ]


def signatures(token: str) -> bytes:
    """``.signatures.json``."""
    return json.dumps({"signatures": [token], "plugin": "_default"}).encode()


def signed(content: Mapping[str, bytes], pair: KeyPair, **claims: Any) -> dict[str, bytes]:
    """With its signature beside it."""
    return {**content, SIGNATURES: signatures(pair.token({"files": listing(content), **claims}))}


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    """Of an archive: a plain file unless ``fields`` say otherwise."""
    found = tarfile.TarInfo(name)
    for field_name, value in fields.items():
        setattr(found, field_name, value)
    return found


def tarred(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar archive, not yet compressed."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for info, data in entries:
            if not info.size:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def packed(content: Mapping[str, bytes]) -> bytes:
    """A ``.tar.gz`` with the leading slashes that ``opa build`` writes."""
    return gzip.compress(tarred(*((entry(f"/{name}"), data) for name, data in content.items())), mtime=0)


def put(file: Path, data: bytes) -> Path:
    """Replaced whole, as deployments should."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(data)
    os.replace(fresh, file)
    return file


def trusting(*pairs: KeyPair, scope: str = "", unsigned: Unsigned = Unsigned.NOTHING) -> Trust:
    """``policy.verification`` with these keys."""
    return Trust({pair.id: pair.verifying for pair in pairs}, scope, unsigned)
