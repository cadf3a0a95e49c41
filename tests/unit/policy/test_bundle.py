"""Reading a folder: what counts, what is refused, and with which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.bundles import bundle
from kblockd.policy.bundles.files import MAX_BYTES
from kblockd.policy.faults import BundleFault, BundleRefused

MODULE = "package a\n"


def refusal(folder: Path) -> BundleFault:
    with pytest.raises(BundleRefused) as raised:
        bundle.read(folder)
    return raised.value.faults[0]


def test_rego_files_below_the_folder_and_data_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.rego").write_text(MODULE)
    (tmp_path / "sub" / "b.rego").write_text(MODULE)
    (tmp_path / "README.md").write_text("not a policy")
    (tmp_path / "data.yaml").write_text("limits: {refund: '25.00', on: 3}\n")
    found = bundle.read(tmp_path)
    assert list(found.modules) == ["a.rego", "sub/b.rego"]
    assert found.data == {"limits": {"refund": "25.00", "on": 3}}


def test_text_beside_the_policies_is_not_part_of_the_revision(tmp_path: Path) -> None:
    (tmp_path / "a.rego").write_text(MODULE)
    before = bundle.read(tmp_path).revision
    (tmp_path / "README.md").write_text("changed")
    assert bundle.read(tmp_path).revision == before
    (tmp_path / "a.rego").write_text(MODULE + "# changed\n")
    assert bundle.read(tmp_path).revision != before


def test_missing_folder(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "nowhere").message


def test_folder_without_policies(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    assert "no .rego file" in refusal(tmp_path).message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.rego", b"package a\xff\n", "not UTF-8 at byte 9"),
        ("a.rego", b"package a\0\n", "NUL"),
        ("data.json", b'{"a": 1, "a": 2}', "stands twice"),
        ("data.json", b"[]", "must be an object"),
        ("data.json", b'{"a": 9007199254740993}', "beyond 2^53-1"),
        ("data.json", b'{"a": NaN}', "NaN"),
        ("data.yaml", b"a: [", "expected"),
        ("data.yaml", b"a: 1\na: 2", "duplicate"),
        ("data.yaml", b"a: 2026-01-01", "not JSON serializable"),
        ("data.yaml", b"a: .nan", "not JSON compliant"),
        ("data.yaml", b"a: !!python/object:os.system x", "constructor"),
    ],
)
def test_broken_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / "z.rego").write_text(MODULE)
    (tmp_path / name).write_bytes(content)
    fault = refusal(tmp_path)
    assert fault.file == name
    assert message in fault.message
    assert fault.next_step


def test_documents_of_a_folder_hang_where_opa_hangs_them(tmp_path: Path) -> None:
    (tmp_path / "a.rego").write_text(MODULE)
    (tmp_path / "data.json").write_text('{"sub": {"x": 1}}')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.yaml").write_text("y: 2")
    assert bundle.read(tmp_path).data == {"sub": {"x": 1, "y": 2}}
    (tmp_path / "sub" / "data.yaml").write_text("x: 2")
    assert refusal(tmp_path).file == "sub/data.yaml"


def test_folder_named_like_a_policy(tmp_path: Path) -> None:
    (tmp_path / "a.rego").mkdir()
    assert refusal(tmp_path).message == "not a regular file"


def test_pipe_named_like_a_policy_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.rego")
    assert refusal(tmp_path).message == "not a regular file"


def test_hidden_names_are_passed_over(tmp_path: Path) -> None:
    """A mounted ConfigMap: links to files by way of a hidden link; and an editor's lock, a link to nothing."""
    config_map(tmp_path)
    (tmp_path / ".#a.rego").symlink_to("nobody@nowhere")
    assert list(bundle.read(tmp_path).modules) == ["a.rego", "limits/deny.rego"]


def test_a_config_map_that_moves_on_is_another_revision(tmp_path: Path) -> None:
    """Its update replaces the one link that all others go through."""
    config_map(tmp_path)
    before = bundle.read(tmp_path).revision
    (tmp_path / "..2027").mkdir()
    (tmp_path / "..2027" / "a.rego").write_text("package b\n")
    (tmp_path / "..2027" / "limits").mkdir()
    (tmp_path / "..2027" / "limits" / "deny.rego").write_text(MODULE)
    (tmp_path / "..data.new").symlink_to("..2027")
    (tmp_path / "..data.new").rename(tmp_path / "..data")
    after = bundle.read(tmp_path)
    assert after.modules["a.rego"] == "package b\n"
    assert after.revision != before


@pytest.mark.parametrize("form", ["absolute", "relative", "folder", "by way of a folder inside"])
@pytest.mark.parametrize("name", ["k/data.yaml", "k/x.rego", "k/notes"])
def test_loc_01_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path, form: str, name: str) -> None:
    """LOC-01: ``policy/k/data.yaml`` a link to ``keys/result.pem``: the key would be data that a rule may quote."""
    policy, keys = tmp_path / "policy", tmp_path / "keys"
    (policy / "k").mkdir(parents=True)
    keys.mkdir()
    (policy / "a.rego").write_text(MODULE)
    (keys / "result.pem").write_text("key: secret\n")
    targets = {
        "absolute": str(keys / "result.pem"),
        "relative": "../../keys/result.pem",
        "folder": "../../keys",
        "by way of a folder inside": "../inside/../../keys/result.pem",
    }
    (policy / "inside").mkdir()
    (policy / name).symlink_to(targets[form])
    fault = refusal(policy)
    assert (fault.file, fault.message) == (name, "a link that leads out of the folder")


def test_loc_01_an_absolute_link_is_refused_even_to_a_file_inside(tmp_path: Path) -> None:
    """Where it leads depends on where the folder is mounted."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "a.rego").write_text(MODULE)
    (tmp_path / "a.rego").symlink_to(tmp_path / "..2026" / "a.rego")
    assert refusal(tmp_path).message == "a link that leads out of the folder"


def test_loc_01_a_file_that_becomes_a_link_while_it_is_read_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a name and its opening somebody puts a link there."""
    policy, secret = tmp_path / "policy", tmp_path / "secret"
    policy.mkdir()
    (policy / "a.rego").write_text(MODULE)
    secret.write_text("package secret\n")
    look = os.open

    def swapped(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if path == "a.rego" and not flags & os.O_PATH:
            (policy / "a.rego").unlink()
            (policy / "a.rego").symlink_to(secret)
        return look(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", swapped)
    assert refusal(policy).message.startswith("cannot be read")


def test_folders_that_lead_into_one_another_end(tmp_path: Path) -> None:
    (tmp_path / "a.rego").write_text(MODULE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "again").symlink_to("..")
    assert "a link to a folder above it" in refusal(tmp_path).message


def test_links_cannot_make_a_small_folder_large(tmp_path: Path) -> None:
    """Each level names the next one twice: 2^20 names in sixty entries."""
    (tmp_path / "a.rego").write_text(MODULE)
    for level in range(20):
        (tmp_path / f".{level}").mkdir()
        for name in ("x", "y"):
            (tmp_path / f".{level}" / name).symlink_to(f"../.{level + 1}")
    (tmp_path / ".20").mkdir()
    (tmp_path / "top").symlink_to(".0")
    assert "10000 names" in refusal(tmp_path).message


def config_map(folder: Path) -> None:
    """As it is mounted: a folder for each version, a link to the current one, and a link for each top name."""
    (folder / "..2026" / "limits").mkdir(parents=True)
    (folder / "..2026" / "a.rego").write_text(MODULE)
    (folder / "..2026" / "limits" / "deny.rego").write_text(MODULE)
    (folder / "..data").symlink_to("..2026")
    for name in ("a.rego", "limits"):
        (folder / name).symlink_to(f"..data/{name}")


def test_file_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.rego").write_text(MODULE)

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert "Permission denied" in refusal(tmp_path).message


def test_too_much(tmp_path: Path) -> None:
    (tmp_path / "a.rego").write_text("#" * (MAX_BYTES + 1))
    assert "bytes" in refusal(tmp_path).message


def test_fault_reads_as_file_line_column_message_and_step() -> None:
    fault = BundleFault("a.rego", 3, 7, "wrong", "correct it")
    assert str(fault) == "a.rego:3:7: wrong; correct it"
    assert str(BundleFault("a.rego", 0, 0, "wrong", "correct it")) == "a.rego: wrong; correct it"
    assert BundleFault.from_json(fault.to_json()) == fault
