"""``.signatures.json``: who vouches for a bundle, in the format of OPA's bundle signing.

One JSON Web Token over the digest of every file. Verified: the token, with a configured key; its scope; its dates; and
that the files are exactly those that it lists. A failure names the key and the next step.
"""

from __future__ import annotations

import datetime as dt
import enum
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kblockd.domain.clock import rfc3339
from kblockd.policy.bundles import documents
from kblockd.policy.bundles.documents import Documents
from kblockd.policy.bundles.files import SIGNATURES
from kblockd.policy.bundles.jws import BadToken, Token, VerificationKey
from kblockd.policy.faults import BundleFault, BundleRefused, refusal

DIGEST: Final = "SHA-256"
_BUILD_AGAIN: Final = "build and sign the bundle again, with `opa build --signing-key`"
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999
_PLUGINS: Final = (None, "", "_default")


class Unsigned(enum.Enum):
    """What may be activated without a signature."""

    NOTHING = "nothing"
    FOLDER = "folder"
    """A folder beside the configuration is as trusted as the configuration; an archive was delivered from elsewhere."""
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Trust:
    """``policy.verification``: the accepted keys, and the required scope ("" for tokens without one)."""

    keys: Mapping[str, VerificationKey]
    scope: str
    unsigned: Unsigned


UNVERIFIED: Final = Trust({}, "", Unsigned.FOLDER)
"""``policy.verification: null``."""


@dataclass(frozen=True, slots=True)
class BundleSignature:
    """The configured key that verified, the scope, and the token for later verification."""

    key: str
    scope: str
    token: str


def verify(
    files: Mapping[str, bytes],
    trust: Trust,
    now: dt.datetime | None,
    *,
    folder: bool,
    parsed: Documents | None = None,
) -> BundleSignature | None:
    """Of the files of a bundle, ``.signatures.json`` among them; None for an unsigned one that is allowed. ``parsed``
    are their documents, where they were read before.

    A present signature must verify even where none is required. Raises ``BundleRefused``.
    """
    if SIGNATURES not in files:
        if trust.unsigned is Unsigned.ANYTHING or (trust.unsigned is Unsigned.FOLDER and folder):
            return None
        step = "sign it with `opa build --signing-key`, or set policy.verification.allow_unsigned: true"
        raise refusal(SIGNATURES, "is not there: nobody signed this bundle", step)
    parsed = parsed or documents.parsed(files)
    text = _token(parsed.signatures or {})
    try:
        token = Token.read(text)
    except BadToken as error:
        raise refusal(SIGNATURES, f"the token cannot be read: {error}", _BUILD_AGAIN) from None
    key = _signer(token, trust)
    _check_scope(token.claims, trust, key)
    _check_dates(token.claims, key, now)
    present = {name: parsed.digests.get(name) or _sha256(files[name]) for name in files if name != SIGNATURES}
    _check_files(present, _listed(token.claims, key), key)
    return BundleSignature(key.id, trust.scope, text)


def _token(document: Mapping[str, Any]) -> str:
    tokens, plugin = document.get("signatures"), document.get("plugin")
    if plugin not in _PLUGINS or not document.keys() <= {"signatures", "plugin"}:
        raise refusal(SIGNATURES, "is not of OPA's own signer", _BUILD_AGAIN)
    if not isinstance(tokens, list) or len(tokens) != 1 or not isinstance(tokens[0], str):
        raise refusal(SIGNATURES, "does not hold exactly one token", _BUILD_AGAIN)
    return tokens[0]


def _signer(token: Token, trust: Trust) -> VerificationKey:
    """The key that verifies: the one that the token names, or any of its algorithm where it names none."""
    if token.key and token.key not in trust.keys:
        known = ", ".join(trust.keys) or "none"
        step = "sign with a configured key (`--verification-key-id` names it), or add the key to policy.verification"
        if not trust.keys:
            step = "add the key to policy.verification; a command knows it by --config"
        raise refusal(SIGNATURES, f"the key {token.key[:128]!r} is not configured (configured: {known})", step)
    candidates = [trust.keys[token.key]] if token.key else list(trust.keys.values())
    for key in candidates:
        if key.verify(token):
            return key
    tried = ", ".join(f"{key.id} ({key.algorithm})" for key in candidates) or "none is configured"
    message = f"no configured key made this signature of {token.algorithm[:16]!r}; tried: {tried}"
    raise refusal(SIGNATURES, message, "sign with the private half of a configured key")


def _check_scope(claims: Mapping[str, Any], trust: Trust, key: VerificationKey) -> None:
    scope = claims.get("scope", "")
    if scope != trust.scope:
        message = f"key {key.id} signed for the scope {str(scope)[:128]!r}, not for {trust.scope!r}"
        raise refusal(SIGNATURES, message, "sign for policy.verification.scope, or correct it")


def _check_dates(claims: Mapping[str, Any], key: VerificationKey, now: dt.datetime | None) -> None:
    """OPA ignores exp and nbf; they are enforced here when present."""
    ends, begins = _date(claims, "exp", key), _date(claims, "nbf", key)
    if now is None and (ends or begins):
        raise refusal(SIGNATURES, f"the signature of key {key.id} has dates, and no clock is at hand", "give the time")
    if now and ends and now >= ends:
        raise refusal(SIGNATURES, f"the signature of key {key.id} expired at {rfc3339(ends)}", _BUILD_AGAIN)
    if now and begins and now < begins:
        message = f"the signature of key {key.id} counts from {rfc3339(begins)} on only"
        raise refusal(SIGNATURES, message, "wait, or correct the clock of one of the two machines")


def _date(claims: Mapping[str, Any], name: str, key: VerificationKey) -> dt.datetime | None:
    if name not in claims:
        return None
    seconds = claims[name]
    if type(seconds) in (int, float) and 0 <= seconds <= _LAST_SECOND:
        return dt.datetime.fromtimestamp(seconds, dt.UTC)
    raise refusal(SIGNATURES, f"key {key.id} signed a claim {name!r} that is no time", _BUILD_AGAIN)


def _listed(claims: Mapping[str, Any], key: VerificationKey) -> dict[str, str]:
    """Digest by name."""
    listed: dict[str, str] = {}
    rows = claims.get("files")
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case {"name": str(name), "hash": str(digest), "algorithm": "SHA-256"} if name not in listed:
                listed[name] = digest
            case _:
                message = f"key {key.id} signed a list of files that cannot be read, or digests other than {DIGEST}"
                raise refusal(SIGNATURES, message, _BUILD_AGAIN)
    return listed


def _check_files(present: Mapping[str, str], listed: Mapping[str, str], key: VerificationKey) -> None:
    """The files must be exactly the listed ones, each with its digest; reports all differences at once."""
    faults = [
        *_faults(present.keys() - listed.keys(), f"key {key.id} did not sign this file"),
        *_faults(listed.keys() - present.keys(), f"key {key.id} signed this file, and it is not there"),
        *_faults(
            (name for name in present.keys() & listed.keys() if present[name] != listed[name].lower()),
            f"key {key.id} signed another content",
        ),
    ]
    if faults:
        raise BundleRefused(faults)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _faults(names: Iterable[str], message: str) -> list[BundleFault]:
    return [BundleFault(name[:200], 0, 0, message, _BUILD_AGAIN) for name in sorted(names)]
