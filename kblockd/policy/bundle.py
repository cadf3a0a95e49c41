"""A bundle, read once: what was verified, what was checked, what decides and what the revision covers are the same
bytes."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kblockd.domain.canonical import canonical, sha256_hex
from kblockd.domain.ledger import identifier
from kblockd.paths import Writers
from kblockd.policy import documents, files, signatures
from kblockd.policy.archive import unpack
from kblockd.policy.documents import Documents, Parse
from kblockd.policy.faults import refusal
from kblockd.policy.manifest import Manifest
from kblockd.policy.signatures import UNVERIFIED, Signature, Trust

Now = Callable[[], dt.datetime]
Reader = Callable[[Path], "Bundle"]
"""``read`` with the trust of a configuration."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a bundle calls itself, and who vouches for it: the configured key and the scope, "" for nobody."""

    bundle_revision: str = ""
    signer: str = ""
    signature_scope: str = ""

    def __str__(self) -> str:
        named = f", calls itself {identifier(self.bundle_revision)}" if self.bundle_revision else ""
        scope = f" for {self.signature_scope}" if self.signature_scope else ""
        return (f"signed by {self.signer}{scope}" if self.signer else "signed by nobody") + named

    def on_record(self) -> Origin:
        """As the ledger holds it: the bundle's own name for itself may be any text."""
        return replace(self, bundle_revision=identifier(self.bundle_revision))


@dataclass(frozen=True, slots=True)
class Bundle:
    """``modules``: text by path relative to its top; ``data``: the base document; ``tests``: how many passed.

    ``revision`` is the SHA-256 of the canonical list of [path, text] of every policy, test, document and manifest;
    ``token`` is the signature, "" without one.
    """

    modules: Mapping[str, str]
    data: Mapping[str, Any]
    revision: str
    tests: int = 0
    origin: Origin = Origin()
    token: str = ""

    @classmethod
    def of(cls, texts: Mapping[str, str], signature: Signature | None = None, found: Documents | None = None) -> Bundle:
        """From texts by path; raises ``PolicyRefused`` for documents or a manifest that cannot be taken. ``found`` are
        the documents among them, where they were read before."""
        found = found or documents.parsed({path: text.encode() for path, text in texts.items()})
        manifest, data = Manifest.read(found.manifest), found.data
        modules = {path: texts[path] for path in sorted(texts) if path.endswith(".rego")}
        manifest.permit(modules, data)
        revision = sha256_hex(canonical([[path, texts[path]] for path in sorted(texts)]))
        if signature is None:
            return cls(modules, data, revision, origin=Origin(manifest.revision))
        origin = Origin(manifest.revision, signature.key, signature.scope)
        return cls(modules, data, revision, origin=origin, token=signature.token)

    def deciding(self) -> dict[str, str]:
        """The modules that answer questions: without the tests."""
        return {path: text for path, text in self.modules.items() if not path.endswith("_test.rego")}

    def to_json(self) -> bytes:
        """The body of the frames that load and check it, and what is kept beside the record of its activation."""
        signed = {"signature": self.token} if self.token else {}
        return json.dumps({"modules": dict(self.modules), "data": dict(self.data), **signed}).encode()


def read(
    path: Path,
    trust: Trust = UNVERIFIED,
    now: Now | None = None,
    parse: Parse = documents.parsed,
    writers: Writers | None = None,
) -> Bundle:
    """The only way in: a folder of Rego, or an OPA bundle in one ``.tar.gz``, verified as ``trust`` says. Blocks.

    ``now`` is what the dates of a signature are compared with; without it a signature that has some is refused.
    ``parse`` reads the documents, before the signature is believed. ``writers``: who alone may write it, and all that
    is above it; None for what comes into force nowhere. Raises ``PolicyRefused`` naming the file.
    """
    folder = path.is_dir()
    found = files.from_folder(path, writers) if folder else unpack(files.regular(path, str(path), writers), path.name)
    signed = parse(found) if documents.is_signed(found) else None
    signature = signatures.verify(found, trust, now() if now else None, folder=folder, found=signed)
    for name in found:
        if files.acts_elsewhere(name):
            raise refusal(name, "OPA would act on it, and kblockd does not", "leave it out: Rego and data only")
    texts = {name: _text(name, data) for name, data in found.items() if files.is_read(name)}
    if not any(name.endswith(".rego") for name in texts):
        raise refusal(str(path), "no .rego file", "point policy.bundle at a folder of policies, or an OPA bundle")
    return Bundle.of(texts, signature, signed or parse({name: found[name] for name in texts}))


def _text(name: str, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise refusal(name, f"not UTF-8 at byte {error.start}", "save it as UTF-8") from None
    if "\0" in text:
        raise refusal(name, "holds a NUL character", "remove it")
    return text
