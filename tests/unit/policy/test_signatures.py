"""Who vouches for a bundle: every way in which the signature, its claims or the files can be wrong."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from kblockd.policy.bundle import Origin, read
from kblockd.policy.faults import Fault, PolicyRefused
from kblockd.policy.signatures import UNVERIFIED, Trust, Unsigned, verify
from tests.contract.policy.bundles import (
    SIGNATURES,
    KeyPair,
    contents,
    listing,
    packed,
    put,
    signatures,
    signed,
    trusting,
)

RELEASE = KeyPair()
STRANGER = KeyPair("stranger")
NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
AT = int(NOW.timestamp())


def refused(content: dict[str, bytes], trust: Trust | None = None, *, folder: bool = False) -> list[Fault]:
    with pytest.raises(PolicyRefused) as raised:
        verify(content, trust or trusting(RELEASE), NOW, folder=folder)
    assert all(fault.next_step for fault in raised.value.faults)
    return list(raised.value.faults)


def message(content: dict[str, bytes], trust: Trust | None = None) -> str:
    """Of a refusal for the signature itself."""
    (fault,) = refused(content, trust)
    assert fault.file == SIGNATURES
    return fault.message


def test_signed_bundle_names_its_key_and_scope(tmp_path: Path) -> None:
    """R487: the origin of the bundle is what the ledger says of it."""
    content = signed(contents(), RELEASE, scope="decide")
    bundle = read(put(tmp_path / "b.tar.gz", packed(content)), trusting(STRANGER, RELEASE, scope="decide"))
    assert bundle.origin == Origin("v12", "release", "decide")
    assert bundle.origin.on_record() == bundle.origin
    assert json.loads(bundle.to_json())["signature"] == bundle.token != ""
    assert "release" in str(bundle.origin)


def test_revision_does_not_depend_on_the_signature(tmp_path: Path) -> None:
    """The same content signed anew is the same policy; who signed it is another matter."""
    both = trusting(RELEASE, STRANGER)
    found = [
        read(put(tmp_path / f"{pair.id}.tar.gz", packed(signed(contents(), pair))), both)
        for pair in (RELEASE, STRANGER)
    ]
    assert found[0].revision == found[1].revision
    assert [bundle.origin.signer for bundle in found] == ["release", "stranger"]


def test_free_text_of_a_manifest_is_a_digest_in_the_ledger() -> None:
    """R503: a bundle may call itself anything."""
    on_record = Origin("v1 by Jo Doe, 555-0100", "release", "").on_record()
    assert on_record.bundle_revision.startswith("sha256:")


@pytest.mark.parametrize(
    ("unsigned", "folder", "archive"),
    [(Unsigned.NOTHING, False, False), (Unsigned.FOLDER, True, False), (Unsigned.ANYTHING, True, True)],
)
def test_unsigned_bundle_needs_a_switch(unsigned: Unsigned, folder: bool, archive: bool) -> None:
    trust = trusting(RELEASE, unsigned=unsigned)
    for allowed, is_folder in ((folder, True), (archive, False)):
        if allowed:
            assert verify(contents(), trust, NOW, folder=is_folder) is None
        else:
            (fault,) = refused(contents(), trust, folder=is_folder)
            assert "nobody signed" in fault.message
            assert "allow_unsigned" in fault.next_step


def test_signature_that_is_there_must_hold_even_where_none_is_asked_for() -> None:
    content = signed(contents(), STRANGER)
    for trust in (UNVERIFIED, trusting(RELEASE, unsigned=Unsigned.ANYTHING)):
        assert "'stranger' is not configured" in message(content, trust)


def test_pol_05_unknown_key() -> None:
    (fault,) = refused(signed(contents(), STRANGER))
    assert "'stranger' is not configured (configured: release)" in fault.message
    assert "--verification-key-id" in fault.next_step


def test_pol_05_key_of_that_name_that_is_another() -> None:
    assert "tried: release (ES256)" in message(signed(contents(), KeyPair()))


def test_pol_05_key_that_signs_under_the_name_of_another() -> None:
    """Both are configured: the ledger must name who signed, not whom the signer pretended to be."""
    other = dataclasses.replace(RELEASE, id="other")
    token = STRANGER.token({"files": listing(contents())}, {"alg": "ES256", "kid": "other"})
    forged = {**contents(), SIGNATURES: signatures(token)}
    assert "tried: other (ES256)" in message(forged, trusting(other, STRANGER))


def test_two_good_tokens_are_not_one() -> None:
    token = RELEASE.token({"files": listing(contents())})
    content = contents() | {SIGNATURES: json.dumps({"signatures": [token, token]}).encode()}
    assert "exactly one token" in message(content)


def test_token_without_a_key_id_is_tried_with_every_key_of_its_algorithm() -> None:
    """As ``opa sign`` writes it."""
    edwards = KeyPair("edwards", "EdDSA", ed25519.Ed25519PrivateKey.generate())
    content = contents()
    token = RELEASE.token({"files": listing(content)}, {"alg": "ES256", "typ": "JWT"})
    content[SIGNATURES] = signatures(token)
    found = verify(content, trusting(edwards, STRANGER, RELEASE), NOW, folder=False)
    assert found is not None
    assert found.key == "release"
    assert "tried: edwards (EdDSA), stranger (ES256)" in message(content, trusting(edwards, STRANGER))


@pytest.mark.parametrize("scope", ["", "other", ["decide"], None, 1])
def test_pol_05_another_scope(scope: Any) -> None:
    claims = {"scope": scope} if scope != "" else {}
    told = message(signed(contents(), RELEASE, **claims), trusting(RELEASE, scope="decide"))
    assert "not for 'decide'" in told
    assert "key release" in told


def test_scope_where_none_is_configured() -> None:
    assert "for the scope 'decide'" in message(signed(contents(), RELEASE, scope="decide"))


@pytest.mark.parametrize("claims", [{"exp": AT + 1}, {"nbf": AT}, {"exp": AT + 0.5, "nbf": 0}, {"iat": AT + 99}])
def test_dates_that_hold(claims: dict[str, Any]) -> None:
    assert verify(signed(contents(), RELEASE, **claims), trusting(RELEASE), NOW, folder=False)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": AT}, "expired at 2026-11-29T12:00:00"),
        ({"exp": 1}, "expired at 1970"),
        ({"nbf": AT + 1}, "counts from 2026-11-29T12:00:01"),
        ({"exp": "2027-01-01"}, "'exp' that is no time"),
        ({"exp": True}, "'exp' that is no time"),
        ({"exp": None}, "'exp' that is no time"),
        ({"nbf": -1}, "'nbf' that is no time"),
        ({"exp": 1e300}, "'exp' that is no time"),
    ],
)
def test_pol_05_dates_that_do_not_hold(claims: dict[str, Any], told: str) -> None:
    """OPA looks at neither; an old bundle with an end cannot be brought back after it."""
    assert told in message(signed(contents(), RELEASE, **claims))


def test_dates_and_no_clock() -> None:
    content = signed(contents(), RELEASE, exp=AT + 1)
    with pytest.raises(PolicyRefused, match="has dates, and no clock"):
        verify(content, trusting(RELEASE), None, folder=False)
    assert verify(signed(contents(), RELEASE), trusting(RELEASE), None, folder=False)


def test_pol_05_every_difference_of_the_files_is_named() -> None:
    """Changed, added, and taken away, at once, each with the key."""
    content = signed(contents(), RELEASE)
    content["decision.rego"] += b"# changed\n"
    content["sneaky.rego"] = b"package sneaky\n"
    content["readme.txt"] = b"not signed either\n"
    del content["recovery.rego"]
    told = {fault.file: fault.message for fault in refused(content)}
    assert told == {
        "decision.rego": "key release signed another content",
        "sneaky.rego": "key release did not sign this file",
        "readme.txt": "key release did not sign this file",
        "recovery.rego": "key release signed this file, and it is not there",
    }


@pytest.mark.parametrize("name", [".manifest", "data.json"])
def test_pol_05_document_with_another_value(name: str) -> None:
    """Blanks and order are not signed, values are; so is the manifest."""
    content = signed(contents(), RELEASE)
    row = json.loads(content[name])
    content[name] = json.dumps(dict(reversed(row.items())), indent=2).encode()
    assert verify(content, trusting(RELEASE), NOW, folder=False)
    content[name] = json.dumps({**row, "revision": "v13", "a": 2}).encode()
    assert [fault.file for fault in refused(content)] == [name]


@pytest.mark.parametrize(
    "files",
    [
        None,
        {},
        "a.rego",
        [["a.rego", "0", "SHA-256"]],
        [{"name": "a.rego", "hash": "0"}],
        [{"name": "a.rego", "hash": "0", "algorithm": "MD5"}],
        [{"name": "a.rego", "hash": 0, "algorithm": "SHA-256"}],
        [{"name": "a.rego", "hash": "0", "algorithm": "SHA-256"}] * 2,
    ],
)
def test_list_of_files_that_cannot_be_read(files: Any) -> None:
    content = contents() | {SIGNATURES: signatures(RELEASE.token({"files": files}))}
    assert "list of files that cannot be read" in message(content)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"signatures": []}',
        b'{"signatures": ["a.b.c", "a.b.c"]}',
        b'{"signatures": [7]}',
        b'{"signatures": "a.b.c"}',
        b'{"signatures": ["a.b.c"]}',
        b'{"signatures": ["a.b.c"], "plugin": "custom"}',
        b'{"signatures": ["a.b.c"], "signatures": []}',
        b'{"signatures": ["a.b.c"], "more": 1}',
    ],
)
def test_signature_file_that_cannot_be_read(document: bytes) -> None:
    assert message(contents() | {SIGNATURES: document})


def test_signed_folder(tmp_path: Path) -> None:
    """``opa sign`` within it: every file but the hidden ones is part of the bargain."""
    content = signed({**contents(), "README.md": b"read me\n"}, RELEASE)
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".editor.swp").write_bytes(b"x")
    assert read(tmp_path, trusting(RELEASE)).origin.signer == "release"
    (tmp_path / "notes.txt").write_bytes(b"not signed")
    with pytest.raises(PolicyRefused, match=r"notes\.txt: key release did not sign"):
        read(tmp_path, trusting(RELEASE))


@pytest.mark.parametrize("name", ["policy.wasm", "sub/plan.json", "patch.json", "x.manifest"])
def test_what_opa_would_act_on_is_refused_though_signed(tmp_path: Path, name: str) -> None:
    content = signed({**contents(), name: b"{}"}, RELEASE)
    with pytest.raises(PolicyRefused, match="OPA would act on it"):
        read(put(tmp_path / "b.tar.gz", packed(content)), trusting(RELEASE))
