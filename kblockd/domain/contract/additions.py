"""Keys that came later. Where one has its default, a contract's document is what it was before there was such a key,
digest and all: what an older ledger agreed on stays what was agreed on (UPG-03)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def without_additions(document: dict[str, Any]) -> dict[str, Any]:
    """The same document, changed in place: ``tool.errors`` null and ``numbers: refuse`` of a read are left out."""
    for holder, key, default in _added(document):
        if holder[key] == default:
            del holder[key]
    return document


def _added(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    yield document["tool"], "errors", None
    reads = document["reads"]
    for read in (reads["snapshot"], reads["verify"], *document["lookup"]):
        if read is not None:
            yield read, "numbers", "refuse"
