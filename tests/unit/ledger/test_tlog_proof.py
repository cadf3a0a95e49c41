"""C2SP tlog-proof@v1."""

from __future__ import annotations

import base64

import pytest

from kblockd.ledger import checkpoint, merkle, tlog_proof
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.merkle import ProofError
from kblockd.ledger.tlog_proof import TlogProof
from tests.unit.ledger import naive
from tests.unit.ledger.keys import TestSigner

ORIGIN = "kblockd.example/prod/1"
LEAVES = [b"record %d" % n for n in range(7)]
SIGNER = TestSigner(1)
NOTE = checkpoint.sign(TreeHead(ORIGIN, 7, naive.mth(LEAVES)), [SIGNER])


def proof_of(index: int, extra: bytes | None = None) -> TlogProof:
    return TlogProof(index, tuple(naive.path(index, LEAVES)), NOTE, extra)


def test_the_text_is_that_of_the_specification() -> None:
    lines = ["c2sp.org/tlog-proof@v1", "extra AAEC", "index 6"]
    lines += [base64.b64encode(value).decode() for value in naive.path(6, LEAVES)]
    assert proof_of(6, b"\0\1\2").text() == "\n".join(lines) + "\n\n" + NOTE


@pytest.mark.parametrize("extra", [None, b"", b"anything"])
@pytest.mark.parametrize("index", range(7))
def test_a_proof_comes_back_and_verifies(index: int, extra: bytes | None) -> None:
    proof = tlog_proof.parse(proof_of(index, extra).text())
    assert proof == proof_of(index, extra)
    assert proof.verify(LEAVES[index], ORIGIN, [SIGNER.public_key]).size == 7
    with pytest.raises(ProofError):
        proof.verify(LEAVES[index] + b"x", ORIGIN, [SIGNER.public_key])
    with pytest.raises(ProofError):
        TlogProof((index + 1) % 7, proof.path, NOTE).verify(LEAVES[index], ORIGIN, [SIGNER.public_key])
    with pytest.raises(merkle.ProofError):
        TlogProof(7 + index, proof.path, NOTE).verify(LEAVES[index], ORIGIN, [SIGNER.public_key])


def test_a_tree_of_one_has_an_empty_path() -> None:
    signed = checkpoint.sign(TreeHead(ORIGIN, 1, naive.mth(LEAVES[:1])), [SIGNER])
    text = TlogProof(0, (), signed).text()
    assert text == f"c2sp.org/tlog-proof@v1\nindex 0\n\n{signed}"
    assert tlog_proof.parse(text).verify(LEAVES[0], ORIGIN, [SIGNER.public_key]).size == 1


HASH = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c2sp.org/tlog-proof@v2\nindex 0\n\n",
        "c2sp.org/tlog-proof@v1\n\n",
        "c2sp.org/tlog-proof@v1\nindex 00\n\n",
        "c2sp.org/tlog-proof@v1\nindex -1\n\n",
        "c2sp.org/tlog-proof@v1\nextra ?\nindex 0\n\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{HASH}",
        "c2sp.org/tlog-proof@v1\nindex 0\nAAAA\n\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{HASH[:-2]}B=\n\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\n{(HASH + chr(10)) * 65}\n",
        f"c2sp.org/tlog-proof@v1\nindex 0\nextra AAAA\n{HASH}\n\n",
    ],
)
def test_what_is_not_a_proof_is_refused(text: str) -> None:
    with pytest.raises(ProofError):
        tlog_proof.parse(text)
