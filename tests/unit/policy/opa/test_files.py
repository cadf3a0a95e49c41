"""What goes to OPA and what comes from ``policy check``: the bundle's archive and the file of revisions."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from kblockd.policy.bundles.bundle import Bundle, Origin
from kblockd.policy.bundles.signatures import BundleSignature
from kblockd.policy.opa import revisions
from kblockd.policy.opa.revisions import MAX_NOTES, RevisionsUnreadable
from kblockd.policy.opa.tarball import build

AT = "2026-11-29T10:00:00.000000Z"
TEXTS = {
    "a.rego": "package a\n",
    "ü/" + "x" * 150 + ".rego": "package b\n",
    "a_test.rego": "package a_test\n",
    "data.json": '{"ä": [1, 1.5]}',
}


def members(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def test_archive_holds_what_decides_and_the_revision_of_everything() -> None:
    bundle = Bundle.of(TEXTS)
    found = members(build(bundle))
    assert set(found) == {".manifest", "data.json", "a.rego", "ü/" + "x" * 150 + ".rego"}
    assert json.loads(found[".manifest"]) == {"revision": bundle.revision, "roots": [""], "rego_version": 1}
    assert json.loads(found["data.json"]) == {"ä": [1, 1.5]}
    assert found["a.rego"] == b"package a\n"


def test_archive_of_the_same_bundle_is_the_same() -> None:
    assert build(Bundle.of(TEXTS)) == build(Bundle.of(dict(reversed(TEXTS.items()))))


def test_notes_are_read_back_newest_last(tmp_path: Path) -> None:
    file = tmp_path / "revisions.jsonl"
    one, two = Bundle.of({"a.rego": "1"}), Bundle.of({"a.rego": "2"})
    for bundle in (one, two, one):
        revisions.note(file, bundle, AT)
    found = revisions.read(file)
    assert list(found) == [two.revision, one.revision]
    assert (found[one.revision].tests, found[one.revision].at) == (0, AT)
    assert list(tmp_path.iterdir()) == [file]


def test_note_of_a_signed_bundle_says_who_signed_it(tmp_path: Path) -> None:
    file = tmp_path / "revisions.jsonl"
    signed = Bundle.of(
        {"a.rego": "1", ".manifest": '{"revision": "v 12"}'}, BundleSignature("release", "decide", "a.b.c")
    )
    revisions.note(file, signed, AT)
    found = revisions.read(file)[signed.revision]
    assert found.origin == signed.origin == Origin("v 12", "release", "decide")
    assert json.loads(found.to_json())["signer"] == "release"


def test_only_the_newest_notes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "revisions.jsonl"
    rows = [{"revision": f"{number:064x}", "tests": 1, "at": AT} for number in range(MAX_NOTES)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    newest = Bundle.of({"a.rego": "1"})
    revisions.note(file, newest, AT)
    found = list(revisions.read(file))
    assert len(found) == MAX_NOTES
    assert (found[0], found[-1]) == (f"{1:064x}", newest.revision)


@pytest.mark.parametrize(
    "line",
    [
        *("garbage", "[]", "{}", "null", '{"revision": "x", "tests": 1, "at": ""}'),
        *(json.dumps({"revision": "a" * 64, "tests": tests, "at": AT}) for tests in (True, "1", None)),
        *(json.dumps({"revision": revision, "tests": 1, "at": AT}) for revision in ("A" * 64, "a" * 63, 1)),
        json.dumps({"revision": "a" * 64, "tests": 1, "at": AT, "more": 1}),
        json.dumps({"revision": "a" * 64, "tests": 1, "at": AT, "more": "x"}),
        json.dumps({"revision": "a" * 64, "tests": 1, "at": AT, "signer": 1}),
        json.dumps({"revision": "a" * 64, "tests": 1}),
    ],
)
def test_file_that_is_not_what_check_writes_passes_nothing(tmp_path: Path, line: str) -> None:
    """And is not overwritten by the next note: somebody must look at it."""
    file = tmp_path / "revisions.jsonl"
    revisions.note(file, Bundle.of({"a.rego": "1"}), AT)
    with file.open("a") as stream:
        stream.write(line + "\n")
    before = file.read_bytes()
    with pytest.raises(RevisionsUnreadable, match=r"revisions\.jsonl:2"):
        revisions.read(file)
    with pytest.raises(OSError, match=r"revisions\.jsonl:2"):
        revisions.note(file, Bundle.of({"a.rego": "2"}), AT)
    assert file.read_bytes() == before


def test_absent_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(RevisionsUnreadable, match="kblockd policy check"):
        revisions.read(tmp_path / "revisions.jsonl")
