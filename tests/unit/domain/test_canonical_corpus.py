"""The corpus of odd values (``tests/vectors/canonical.json``, made by ``make_canonical.py`` beside it)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from kblockd.domain.canonical import NotCanonical, canonical, digest, parse, reparse

VECTORS = Path(__file__).parents[2] / "vectors"
CORPUS: dict[str, list[dict[str, Any]]] = json.loads((VECTORS / "canonical.json").read_text())
ACCEPTED = [(entry["text"], entry["canonical"]) for entry in CORPUS["accepted"]]
REFUSED = [(entry["text"].encode(), entry["why"]) for entry in CORPUS["refused"]]
REFUSED += [(bytes.fromhex(entry["hex"]), entry["why"]) for entry in CORPUS["refused_bytes"]]


def test_can_12_the_corpus_is_large_enough() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 200


@pytest.mark.parametrize(("text", "expected"), ACCEPTED)
def test_can_12_every_way_to_a_digest_agrees(text: str, expected: str) -> None:
    value = parse(text.encode(), top=object)
    written = canonical(value)
    assert written == expected.encode()
    assert rfc8785.dumps(value) == written
    assert canonical(reparse(written)) == written
    assert digest(value) == digest(reparse(written)) == hashlib.sha256(expected.encode()).hexdigest()


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_can_12_every_trap_is_refused_for_its_reason(text: bytes, why: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        parse(text, top=object)
    assert why in str(caught.value)


@pytest.mark.skipif(
    shutil.which("node") is None and os.environ.get("CI") != "true",
    reason="Node is missing: it is the independent judge of the corpus",
)
def test_can_12_node_still_writes_the_expected_forms() -> None:
    texts = json.dumps([text for text, _ in ACCEPTED])
    done = subprocess.run(["node", VECTORS / "canonical.js"], input=texts, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [expected for _, expected in ACCEPTED]
