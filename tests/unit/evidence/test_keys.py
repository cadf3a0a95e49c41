"""Keys at rest, the key set, and what a daemon refuses to start with."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kblockd.domain.canonical import canonical, sha256_hex
from kblockd.evidence import dsse, keys
from kblockd.evidence.ceremony import add_effect_secret, add_key, init_keys, retire, signing_key
from kblockd.evidence.errors import KeyNotValid, KeysRefused, UnknownKey
from kblockd.evidence.jwks import KeySet, PublicKey, Role, thumbprint
from kblockd.evidence.keyring import KeyRing, open_keyset
from tests.records import document
from tests.unit.evidence.samples import World

FILES = {"result.pem", "log.pem", "approval.pem", "effect.pem", "root.pub.pem", "keyset.dsse.json"}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_thumbprint_equals_the_vector_of_rfc_8037() -> None:
    raw = base64.urlsafe_b64decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    assert thumbprint(raw) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_init_makes_exactly_these_files_with_these_modes(world: World) -> None:
    assert {path.name for path in world.folder.iterdir()} == FILES
    assert _mode(world.folder) == 0o700
    assert {_mode(path) for path in world.folder.iterdir()} == {0o600}
    assert _mode(world.root_file) == 0o600
    assert world.root_file.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")  # PKCS#8
    assert os.listdir(world.folder.parent) in (["keys", "root.pem"], ["root.pem", "keys"])


def test_init_under_a_loose_umask_is_as_tight(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        init_keys(tmp_path / "keys", tmp_path / "root.pem")
    finally:
        os.umask(before)
    KeyRing.load(tmp_path / "keys")
    assert _mode(tmp_path / "root.pem") == 0o600


def test_the_key_set_is_a_jwks_without_alg_signed_by_the_root(world: World) -> None:
    envelope = json.loads(world.ring.keyset_envelope)
    assert envelope["payloadType"] == "application/jwk-set+json"
    assert envelope["signatures"][0]["keyid"] == thumbprint(world.ring.root_public_key)
    payload = json.loads(base64.b64decode(envelope["payload"]))
    assert [key["role"] for key in payload["keys"]] == ["result", "log", "approval"]
    for key in payload["keys"]:
        assert set(key) == {"kty", "crv", "x", "kid", "use", "role", "fromIndex"}
        assert (key["kty"], key["crv"], key["fromIndex"]) == ("OKP", "Ed25519", "0")
    assert len({signer.public_key for signer in world.ring.signers.values()}) == 3


def test_openssl_reads_every_key_file(world: World) -> None:
    for name in ("result.pem", "log.pem", "approval.pem", "effect.pem"):
        command = ["openssl", "pkey", "-in", str(world.folder / name), "-noout", "-text"]
        assert b"ED25519" in subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.parametrize("name", ["keys", "root.pem"])
def test_init_never_overwrites(world: World, name: str, tmp_path: Path) -> None:
    before = (world.folder / "result.pem").read_bytes()
    other = {"keys": (world.folder, tmp_path / "r2.pem"), "root.pem": (tmp_path / "k2", world.root_file)}[name]
    with pytest.raises(KeysRefused, match="exists"):
        init_keys(*other)
    assert (world.folder / "result.pem").read_bytes() == before
    assert not (tmp_path / "r2.pem").exists()
    assert not (tmp_path / "k2").exists()


def test_init_refuses_a_root_among_the_daemons_keys(tmp_path: Path) -> None:
    with pytest.raises(KeysRefused, match="offline"):
        init_keys(tmp_path / "keys", tmp_path / "keys" / "root.pem")
    with pytest.raises(KeysRefused, match="no such folder"):
        init_keys(tmp_path / "keys", tmp_path / "usb" / "root.pem")
    assert os.listdir(tmp_path) == []


def test_init_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    made: list[int] = []

    def generate() -> Ed25519PrivateKey:
        made.append(1)
        if len(made) == 4:  # every check has passed; now another takes the root's name
            (tmp_path / "root.pem").write_bytes(b"another's")
        return Ed25519PrivateKey.generate()

    with pytest.raises(KeysRefused, match="no keys were created"):
        init_keys(tmp_path / "keys", tmp_path / "root.pem", generate=generate)
    assert sorted(os.listdir(tmp_path)) == ["root.pem"]
    assert (tmp_path / "root.pem").read_bytes() == b"another's"


def test_passphrases_guard_the_files(tmp_path: Path) -> None:
    secret, root_secret = os.urandom(32).hex().encode(), os.urandom(32).hex().encode()
    folder, root = tmp_path / "keys", tmp_path / "root.pem"
    init_keys(folder, root, passphrase=secret, root_passphrase=root_secret)
    assert b"ENCRYPTED" in (folder / "result.pem").read_bytes()
    assert b"ENCRYPTED" in root.read_bytes()
    KeyRing.load(folder, passphrase=secret)
    for wrong, why in ((None, "no passphrase was given"), (b"wrong", "wrong passphrase")):
        with pytest.raises(KeysRefused, match=why) as caught:
            KeyRing.load(folder, passphrase=wrong)
        assert secret.decode() not in str(caught.value)
    add_key(folder, root, Role.RESULT, from_index=5, passphrase=secret, root_passphrase=root_secret)
    KeyRing.load(folder, passphrase=secret)
    with pytest.raises(KeysRefused):
        add_key(folder, root, Role.RESULT, from_index=9, passphrase=secret)


def test_a_passphrase_for_plain_keys_is_a_mistake_that_is_named(world: World) -> None:
    with pytest.raises(KeysRefused, match="not encrypted"):
        KeyRing.load(world.folder, passphrase=b"x")


def test_the_effect_secret_is_each_tenants_own_and_survives_a_reload(world: World) -> None:
    """EVI-15: a backup that holds the folder derives the same effect keys; another folder, or tenant, does not."""
    acme = world.ring.effect.tenant("acme")
    assert world.reloaded().ring.effect.tenant("acme") == acme
    assert len({acme, world.ring.effect.tenant("other"), world.ring.effect.seed}) == 3
    assert acme.hex() not in repr(world.ring)
    assert world.ring.effect.seed.hex() not in repr(world.ring)


def test_a_missing_effect_secret_is_never_made_anew(world: World) -> None:
    """A fresh one would turn the repeat of a call into a second deed at an idempotent upstream."""
    (world.folder / "effect.pem").unlink()
    with pytest.raises(KeysRefused, match="restore it from the backup"):
        KeyRing.load(world.folder)


def test_an_effect_secret_that_was_not_written_whole_is_made_when_it_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a kill, in the middle of an upgrade."""
    (world.folder / "effect.pem").unlink()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            add_effect_secret(world.folder)
    assert add_effect_secret(world.folder)
    assert KeyRing.load(world.folder).effect.key_id
    assert not add_effect_secret(world.folder)


def test_signers_never_show_their_key(world: World) -> None:
    shown = repr(world.ring) + repr(world.ring.result)
    private = (world.folder / "result.pem").read_text().splitlines()[1]
    assert private not in shown
    assert "Ed25519PrivateKey" not in shown


@pytest.mark.parametrize("name", sorted(FILES))
def test_rcp_09_a_missing_file_refuses_the_start(world: World, name: str) -> None:
    (world.folder / name).unlink()
    with pytest.raises(KeysRefused) as caught:
        KeyRing.load(world.folder)
    assert name in str(caught.value)
    assert not (world.folder / name).exists()  # no throwaway key was made


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_rcp_09_an_unreadable_file_refuses_the_start(world: World, name: str, content: bytes) -> None:
    (world.folder / name).write_bytes(content)
    with pytest.raises(KeysRefused, match=name):
        KeyRing.load(world.folder)


@pytest.mark.parametrize("name", ["", *sorted(FILES)])
@pytest.mark.parametrize("bits", [0o040, 0o020, 0o004, 0o002])
def test_rcp_09_a_mode_open_to_others_refuses_the_start(world: World, name: str, bits: int) -> None:
    path = world.folder / name
    path.chmod(_mode(path) | bits)
    with pytest.raises(KeysRefused, match=r"mode 0[0-7]+.*chmod"):
        KeyRing.load(world.folder)


def test_rcp_09_a_tighter_mode_is_fine(world: World) -> None:
    for path in world.folder.iterdir():
        path.chmod(0o400)
    world.folder.chmod(0o500)
    KeyRing.load(world.folder)
    world.folder.chmod(0o700)


def test_rcp_09_another_owner_refuses_the_start(world: World) -> None:
    with pytest.raises(KeysRefused, match="belongs to uid"):
        KeyRing.load(world.folder, uid=os.geteuid() + 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
@pytest.mark.parametrize("name", sorted(FILES))
def test_rcp_09_one_file_of_another_owner_refuses_the_start(world: World, name: str) -> None:
    os.chown(world.folder / name, 12345, -1)
    with pytest.raises(KeysRefused, match=f"{name}: belongs to uid 12345"):
        KeyRing.load(world.folder)


def _link(folder: Path) -> None:
    (folder / "result.pem").rename(folder.parent / "elsewhere.pem")
    (folder / "result.pem").symlink_to(folder.parent / "elsewhere.pem")


def _pipe(folder: Path) -> None:
    (folder / "result.pem").unlink()
    os.mkfifo(folder / "result.pem", 0o600)


def _directory(folder: Path) -> None:
    (folder / "result.pem").unlink()
    (folder / "result.pem").mkdir(mode=0o700)


def _other_kind(folder: Path) -> None:
    command = ["openssl", "genpkey", "-algorithm", "X25519", "-out", str(folder / "result.pem")]
    subprocess.run(command, check=True, capture_output=True)


def _swap(folder: Path) -> None:
    (folder / "result.pem").rename(folder / "x")
    (folder / "log.pem").rename(folder / "result.pem")
    (folder / "x").rename(folder / "log.pem")


def _copy(folder: Path) -> None:
    (folder / "approval.pem").write_bytes((folder / "result.pem").read_bytes())


def _fresh(folder: Path) -> None:
    (folder / "result.pem").write_bytes(keys.private_pem(Ed25519PrivateKey.generate(), None))


@pytest.mark.parametrize("damage", [_link, _pipe, _directory, _other_kind, _swap, _copy, _fresh])
def test_rcp_09_a_wrong_key_file_refuses_the_start(world: World, damage: Callable[[Path], None]) -> None:
    damage(world.folder)
    with pytest.raises(KeysRefused, match=r"(result|approval)\.pem"):
        KeyRing.load(world.folder)


def test_rcp_09_a_folder_that_is_absent_or_a_link_refuses_the_start(world: World, tmp_path: Path) -> None:
    with pytest.raises(KeysRefused, match="keys init"):
        KeyRing.load(tmp_path / "absent")
    (tmp_path / "link").symlink_to(world.folder)
    with pytest.raises(KeysRefused, match="not a folder"):
        KeyRing.load(tmp_path / "link")


def test_rcp_09_a_key_set_by_another_root_refuses_the_start(world: World, tmp_path: Path) -> None:
    forger = keys.LocalSigner(Ed25519PrivateKey.generate())
    forged = dsse.sign(dsse.JWKS_TYPE, world.ring.keyset.payload(), forger)
    (world.folder / "keyset.dsse.json").write_bytes(forged)
    with pytest.raises(KeysRefused, match="not signed by the root"):
        KeyRing.load(world.folder)
    (world.folder / "root.pub.pem").write_bytes(keys.public_pem(forger.public_key))
    KeyRing.load(world.folder)
    with pytest.raises(KeysRefused, match="pinned"):
        KeyRing.load(world.folder, root_public_key=world.ring.root_public_key)


def test_rcp_09_one_public_key_never_serves_two_roles(world: World) -> None:
    root = keys.read_private(world.root_file, None, uid=os.geteuid())
    first, *rest = world.ring.keyset.keys
    twice = [first.jwk(), {**first.jwk(), "role": "log"}, rest[1].jwk()]
    with_root = [*(key.jwk() for key in world.ring.keyset.keys), PublicKey(Role.LOG, root.public_key, 5).jwk()]
    with_root[1]["toIndex"] = "4"
    for members, why in ((twice, "twice"), (with_root, "second role")):
        payload = canonical({"keys": members, "version": "2"})
        (world.folder / "keyset.dsse.json").write_bytes(dsse.sign(dsse.JWKS_TYPE, payload, root))
        with pytest.raises(KeysRefused, match=why):
            KeyRing.load(world.folder)


def test_key_set_members_are_strict(world: World) -> None:
    document = json.loads(world.ring.keyset.payload())
    member = document["keys"][0]
    members = [
        {**member, "alg": "EdDSA"},
        {**member, "kid": "other"},
        {**member, "role": "root"},
        {**member, "fromIndex": 0},
        {**member, "fromIndex": "00"},
        {**member, "fromIndex": "-1"},
        {**member, "toIndex": None},
        {**member, "fromIndex": "5", "toIndex": "4"},
        {**member, "x": member["x"][:-2]},
        {**member, "x": 5},
        {k: v for k, v in member.items() if k != "x"},
        "text",
    ]
    for changed in members:
        with pytest.raises(KeysRefused):
            KeySet.read(canonical({**document, "keys": [changed, *document["keys"][1:]]}))
    for frame in (
        {**document, "x": "y"},
        {"keys": document["keys"]},
        {**document, "version": 1},
        {**document, "keys": {}},
    ):
        with pytest.raises(KeysRefused):
            KeySet.read(canonical(frame))
    with pytest.raises(KeysRefused):
        KeySet.read(json.dumps(document).encode())


def test_ranges_of_one_role_never_overlap() -> None:
    def key(first: int, last: int | None) -> PublicKey:
        return PublicKey(Role.LOG, os.urandom(32), first, last)

    KeySet(1, (key(0, 4), key(5, 9), key(10, None)))
    for pair in ((key(0, 5), key(5, None)), (key(0, None), key(5, None)), (key(0, None), key(5, 9))):
        with pytest.raises(KeysRefused, match="overlap"):
            KeySet(1, pair)


def test_valid_tells_role_range_and_unknown_apart() -> None:
    one = PublicKey(Role.RESULT, os.urandom(32), 5, 9)
    found = KeySet(1, (one,))
    for index in (5, 9):
        assert found.valid(one.kid, Role.RESULT, index) is one
    for index in (4, 10):
        with pytest.raises(KeyNotValid, match=f"not at index {index}"):
            found.valid(one.kid, Role.RESULT, index)
    with pytest.raises(KeyNotValid, match="role result, not log"):
        found.valid(one.kid, Role.LOG, 5)
    with pytest.raises(UnknownKey):
        found.valid("other", Role.RESULT, 5)
    with pytest.raises(KeyNotValid, match="no active"):
        found.active(Role.RESULT)


@pytest.mark.parametrize("role", list(Role))
def test_rotation_adds_one_key_and_ends_the_other(world: World, role: Role) -> None:
    old = world.ring.signer(role)
    change = add_key(world.folder, world.root_file, role, from_index=7)
    ring = KeyRing.load(world.folder)
    assert ring.signer(role).public_key == change.added[0].raw != old.public_key
    assert [(key.kid, key.to_index) for key in change.retired] == [(old.key_id, 6)]
    assert ring.keyset == change.keyset == open_keyset(change.envelope, world.ring.root_public_key)
    assert (ring.keyset.version, len(ring.keyset.keys)) == (2, 4)
    assert ring.keyset_envelope == change.envelope
    assert {path.name for path in world.folder.iterdir()} == FILES  # the old private key is gone
    assert {_mode(path) for path in world.folder.iterdir()} == {0o600}


def test_rotation_needs_the_right_root_and_a_later_index(world: World, tmp_path: Path) -> None:
    init_keys(tmp_path / "k2", tmp_path / "other-root.pem")
    before = world.ring.keyset_envelope
    with pytest.raises(KeysRefused, match="not the root of these keys"):
        add_key(world.folder, tmp_path / "other-root.pem", Role.RESULT, from_index=7)
    with pytest.raises(KeysRefused, match="must start later"):
        add_key(world.folder, world.root_file, Role.RESULT, from_index=0)
    assert KeyRing.load(world.folder).keyset_envelope == before


def test_an_interrupted_rotation_refuses_the_start_and_says_how_to_go_on(world: World) -> None:
    old = (world.folder / "log.pem").read_bytes()
    add_key(world.folder, world.root_file, Role.LOG, from_index=7)
    (world.folder / "log.pem").rename(world.folder / "log.next.pem")
    keys.write_new(world.folder / "log.pem", old)
    with pytest.raises(KeysRefused, match=r"move log\.next\.pem over log\.pem"):
        KeyRing.load(world.folder)
    (world.folder / "log.next.pem").replace(world.folder / "log.pem")
    KeyRing.load(world.folder)


def test_retire_only_shortens_and_leaves_the_role_without_a_key(world: World) -> None:
    kid = world.ring.result.key_id
    change = retire(world.folder, world.root_file, kid, to_index=9)
    assert [(key.kid, key.to_index) for key in change.retired] == [(kid, 9)]
    with pytest.raises(KeysRefused, match="no active result key"):
        KeyRing.load(world.folder)
    with pytest.raises(KeysRefused, match="never extended"):
        retire(world.folder, world.root_file, kid, to_index=10)
    revoked = retire(world.folder, world.root_file, kid, to_index=4)
    assert revoked.keyset.keys[0].to_index == 4
    with pytest.raises(KeysRefused, match="no key"):
        retire(world.folder, world.root_file, "other", to_index=4)
    with pytest.raises(KeysRefused, match="overlap"):
        add_key(world.folder, world.root_file, Role.RESULT, from_index=4)
    add_key(world.folder, world.root_file, Role.RESULT, from_index=5)
    KeyRing.load(world.folder)


def test_record_bodies_bind_the_signed_key_set(world: World) -> None:
    change = add_key(world.folder, world.root_file, Role.RESULT, from_index=7)
    added, retired = (document(signing_key(key, change.envelope)) for key in (change.added[0], change.retired[0]))
    assert added == {
        "kid": change.added[0].kid,
        "role": "result",
        "publicKey": change.added[0].raw.hex(),
        "fromIndex": 7,
        "keysetSha256": sha256_hex(change.envelope),
    }
    assert (retired["kid"], retired["fromIndex"], retired["toIndex"]) == (world.ring.result.key_id, 0, 6)
