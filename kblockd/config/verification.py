"""``policy.verification``: from key files to a ``Trust``, or to faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile, VerificationKeySection
from kblockd.config.sources import Source, beside
from kblockd.domain.contract import Path as KeyPath
from kblockd.policy.bundles.jws import BadKey, VerificationKey
from kblockd.policy.bundles.signatures import UNVERIFIED, Trust, Unsigned

MAX_BYTES: Final = 64 << 10
_AT: Final[KeyPath] = ("policy", "verification")


def faults(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    """Each key is usable with its algorithm, and at least one bundle could come into force."""
    section = model.policy.verification
    if section is None:
        return
    if not section.keys and not section.allow_unsigned:
        message = "names no key and allows nothing unsigned: no policy could come into force"
        yield daemon.document.fault(_AT, message, "name the public key of the bundles' signer, or write null")
    if not section.keys and section.scope:
        message = "has an effect only with keys"
        yield daemon.document.fault((*_AT, "scope"), message, 'write "", or name a key')
    seen: set[str] = set()
    for position, key in enumerate(section.keys):
        at: KeyPath = (*_AT, "keys", position)
        if key.id in seen:
            yield daemon.document.fault((*at, "id"), f"duplicate id {key.id!r}", "give each key its own id")
        seen.add(key.id)
        try:
            _key(daemon.file, key)
        except (OSError, BadKey) as error:
            why = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)
            message = f"{beside(daemon.file, key.file)} of key {key.id!r} {why}"
            yield daemon.document.fault((*at, "file"), message, f"name a file with its {key.algorithm} public key")


def trust(file: Path, model: DaemonFile) -> Trust:
    """For a section without faults; raises ``OSError`` or ``BadKey`` if a file has changed since the check."""
    section = model.policy.verification
    if section is None:
        return UNVERIFIED
    keys = {key.id: _key(file, key) for key in section.keys}
    unsigned = Unsigned.ANYTHING if section.allow_unsigned else Unsigned.NOTHING
    return Trust(MappingProxyType(keys), section.scope, unsigned)


def _key(file: Path, section: VerificationKeySection) -> VerificationKey:
    with beside(file, section.file).open("rb") as stream:
        return VerificationKey.from_pem(section.id, section.algorithm, stream.read(MAX_BYTES))
