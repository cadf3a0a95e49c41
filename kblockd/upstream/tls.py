"""TLS to an upstream: one context per upstream (creating one blocks for about 21 ms), and public key pins."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Collection

import httpx2
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class PinMismatch(httpx2.ConnectError):
    """The peer's certificate is valid, but its public key is not in ``spki_sha256``."""

    code = "TLS_PIN_MISMATCH"


def make_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Verifies chain and name, TLS 1.2 or newer; ``ca_file`` (PEM) replaces the system's authorities.

    Not ``ssl.create_default_context``, which writes session keys to the file in SSLKEYLOGFILE. Raises OSError or
    ``ssl.SSLError`` when ``ca_file`` cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        context.load_verify_locations(cafile=ca_file)
    return context


def check_pin(certificate: bytes | None, pins: Collection[str]) -> None:
    """Raises ``PinMismatch`` unless the peer's key is pinned; without pins any verified certificate passes."""
    if not pins:
        return
    if certificate is None or spki_sha256(certificate) not in pins:
        raise PinMismatch("the upstream's public key is not in tls.spki_sha256")


def spki_sha256(certificate: bytes) -> str:
    """Lowercase hex of SHA-256 over the SubjectPublicKeyInfo of a DER certificate."""
    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
