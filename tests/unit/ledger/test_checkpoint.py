"""C2SP signed-note and tlog-checkpoint, against vectors of others."""

from __future__ import annotations

import base64
import hashlib

import pytest

from kblockd.ledger import checkpoint, note
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.note import NoteError, Verifier
from tests.unit.ledger.keys import TestSigner

ORIGIN = "kblockd.example/prod/1"
ROOT = bytes(range(32))

# From the documentation of golang.org/x/mod/sumdb/note: its key and its signed message.
GO_KEY = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def test_a_note_that_go_signed_verifies() -> None:
    text, signers = note.verify(GO_NOTE, [Verifier("PeterNeumann", GO_KEY[1:])])
    assert text == GO_NOTE.split("\n\n")[0] + "\n"
    assert [signer.name for signer in signers] == ["PeterNeumann"]
    assert signers[0].key_id.hex() == "c74f20a3"


def test_a_checkpoint_is_the_bytes_of_the_specification() -> None:
    signer = TestSigner(1)
    signed = checkpoint.sign(TreeHead(ORIGIN, 258, ROOT), [signer])
    text = f"{ORIGIN}\n258\n{base64.b64encode(ROOT).decode()}\n"
    key_id = hashlib.sha256(ORIGIN.encode() + b"\n\x01" + signer.public_key).digest()[:4]
    line = base64.b64encode(key_id + signer.sign(text.encode())).decode()
    assert signed == f"{text}\n\u2014 {ORIGIN} {line}\n"
    assert checkpoint.verify(signed, ORIGIN, [signer.public_key]) == TreeHead(ORIGIN, 258, ROOT)


def test_rcp_08_an_old_and_a_new_signature_while_a_key_rotates() -> None:
    """RCP-08: whoever knows one of the keys can verify; a line by an unknown key is ignored."""
    old, new, stranger = TestSigner(1), TestSigner(2), TestSigner(3)
    signed = checkpoint.sign(TreeHead(ORIGIN, 1, ROOT), [old, new])
    for keys in ([old.public_key], [new.public_key], [stranger.public_key, new.public_key]):
        assert checkpoint.verify(signed, ORIGIN, keys).size == 1
    with pytest.raises(NoteError, match="no signature by a trusted key"):
        checkpoint.verify(signed, ORIGIN, [stranger.public_key])
    cosigned = note.sign(signed.split("\n\n")[0] + "\n", "witness.example/w1", [stranger]).splitlines()[-1]
    assert checkpoint.verify(f"{signed}{cosigned}\n", ORIGIN, [old.public_key]).size == 1


def test_every_changed_byte_fails() -> None:
    signer = TestSigner(1)
    signed = checkpoint.sign(TreeHead(ORIGIN, 258, ROOT), [signer])
    for at in range(len(signed)):
        changed = signed[:at] + chr(ord(signed[at]) ^ 1) + signed[at + 1 :]
        with pytest.raises(NoteError):
            checkpoint.verify(changed, ORIGIN, [signer.public_key])
        with pytest.raises(NoteError):
            checkpoint.verify(signed[:at], ORIGIN, [signer.public_key])


def test_a_known_key_that_fails_condemns_the_note() -> None:
    one, two = TestSigner(1), TestSigner(2)
    signed = checkpoint.sign(TreeHead(ORIGIN, 1, ROOT), [one])
    other = checkpoint.sign(TreeHead(ORIGIN, 2, ROOT), [two]).splitlines()[-1]
    with pytest.raises(NoteError, match="does not verify"):
        checkpoint.verify(f"{signed}{other}\n", ORIGIN, [one.public_key, two.public_key])


def test_a_checkpoint_of_another_log_is_refused() -> None:
    signer = TestSigner(1)
    text = TreeHead("kblockd.example/prod/2", 1, ROOT).text()
    with pytest.raises(NoteError, match="is of the log"):
        checkpoint.verify(note.sign(text, ORIGIN, [signer]), ORIGIN, [signer.public_key])


@pytest.mark.parametrize(
    "text",
    [
        "o\n1\n",
        "o\n01\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "o\n-1\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "o\n\u0661\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "o\n9223372036854775808\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "o\n" + "9" * 5000 + "\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "\n1\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "o\n1\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=\n",
        "o\n1\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\nextension\n",
        "o\n1\nAAEC\n",
        "o\n1\nnot base64\n",
    ],
)
def test_what_is_not_a_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError):
        checkpoint.parse(text)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b", "a\tb"])
def test_names_that_no_key_may_bear(name: str) -> None:
    with pytest.raises(ValueError, match="key name"):
        note.sign("text\n", name, [TestSigner(1)])


@pytest.mark.parametrize("text", ["", "\n", "no newline", "a\tb\n", "a\rb\n"])
def test_texts_that_no_note_may_hold(text: str) -> None:
    with pytest.raises(ValueError, match="note's text"):
        note.sign(text, "name", [TestSigner(1)])


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "text\n",
        "text\n\n",
        "text\n\n\u2014 name\n",
        "text\n\n\u2014 name AAAA\n",
        "text\n\n- name AAAAAAAA\n",
        "text\n\n\u2014 name AAAAAAAA",
        "x" * 70_000 + "\n\n\u2014 name AAAAAAAA\n",
        "text\n\n" + "\u2014 name AAAAAAAA\n" * 65,
    ],
)
def test_what_is_not_a_note_is_refused(damaged: str) -> None:
    with pytest.raises(NoteError):
        note.split(damaged)


def test_sixteen_signatures_are_read() -> None:
    """C2SP signed-note: at least 16 must be accepted."""
    _, signatures = note.split(note.sign("text\n", "name", [TestSigner(n) for n in range(1, 17)]))
    assert len(signatures) == 16
