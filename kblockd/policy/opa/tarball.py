"""A bundle in OPA's format: the modules without tests, the data, and a manifest with our revision."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping

from kblockd.policy.bundles.bundle import Bundle


def build(bundle: Bundle) -> bytes:
    """The ``.tar.gz``; the same bundle gives the same bytes.

    Its one root is everything, so that OPA refuses policies and data that somebody uploads beside it. Tests are part
    of the revision and not of what decides.
    """
    # Rego version 1: without it an OPA that was started for old policies would read the same text differently.
    manifest = {"revision": bundle.revision, "roots": [""], "rego_version": 1}
    files = {".manifest": json.dumps(manifest), "data.json": json.dumps(dict(bundle.data)), **bundle.deciding()}
    return packed({name: text.encode() for name, text in files.items()})


def packed(files: Mapping[str, bytes]) -> bytes:
    """A ``.tar.gz`` of exactly these files; the same files give the same bytes."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(archive.getvalue(), mtime=0)
