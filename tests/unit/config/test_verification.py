"""``policy.bundle`` and ``policy.verification``: whose signatures count, and every key file that cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from kblockd import decision_point
from kblockd.policy.bundles.signatures import UNVERIFIED, Unsigned
from kblockd.policy.faults import BundleRefused
from tests.contract.policy.bundles import KeyPair, contents, packed, put, signed
from tests.unit.config.conftest import DAEMON, Folder

Verify = Callable[..., Folder]
KEY = {"id": "release", "algorithm": "ES256", "file": "release.pub.pem"}


@pytest.fixture
def verification(folder: Folder, change: Callable[[str, str, Any], None]) -> Verify:
    """The section, with the key files of two pairs at hand."""
    KeyPair().write(folder.path)
    KeyPair("old", "RS256", rsa.generate_private_key(65537, 1024)).write(folder.path)

    def changed(*keys: dict[str, Any], allow_unsigned: bool = False, scope: str = "") -> Folder:
        change(DAEMON, "policy.verification", {"allow_unsigned": allow_unsigned, "scope": scope, "keys": list(keys)})
        return folder

    return changed


def told(folder: Folder, key: str) -> str:
    (fault,) = folder.faults()
    assert fault.key == f"policy.verification{key}"
    assert fault.place.line > 1
    return f"{fault.message}; {fault.next_step}"


def test_shipped_configuration_takes_its_own_folder_and_no_foreign_archive(folder: Folder) -> None:
    assert folder.load().policy.trust is UNVERIFIED


def test_keys_are_loaded_and_nothing_unsigned_is_taken(verification: Verify) -> None:
    trust = verification(KEY, scope="decide").load().policy.trust
    assert (list(trust.keys), trust.scope, trust.unsigned) == (["release"], "decide", Unsigned.NOTHING)
    assert trust.keys["release"].algorithm == "ES256"


@pytest.mark.parametrize("keys", [(), (KEY,)])
def test_unsigned_bundles_are_a_switch_that_is_said_loudly(verification: Verify, keys: tuple[Any, ...]) -> None:
    found = verification(*keys, allow_unsigned=True).load()
    assert found.policy.trust.unsigned is Unsigned.ANYTHING
    (warning,) = found.warnings
    assert "allow_unsigned" in warning


def test_bundle_may_be_an_archive_that_is_not_there_yet(
    folder: Folder, change: Callable[[str, str, Any], None]
) -> None:
    change(DAEMON, "policy.bundle", "bundles/current.tar.gz")
    assert folder.load().policy.bundle == folder.path / "bundles/current.tar.gz"


def test_nothing_could_come_into_force(verification: Verify) -> None:
    assert "no policy could come into force" in told(verification(), "")


def test_scope_without_keys_does_not_act(verification: Verify) -> None:
    assert "has an effect only with keys" in told(verification(allow_unsigned=True, scope="decide"), ".scope")


def test_one_id_is_one_key(verification: Verify) -> None:
    assert "duplicate id 'release'" in told(verification(KEY, {**KEY}), ".keys[1].id")


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"file": "nowhere.pem"}, "file", "of key 'release' cannot be read"),
        ({"file": "release.pem"}, "file", "of key 'release' holds a private key"),
        ({"file": "kblockd.yaml"}, "file", "of key 'release' holds no public key"),
        ({"file": "old.pub.pem"}, "file", "of key 'release' holds a key that cannot verify ES256"),
        ({"file": "old.pub.pem", "algorithm": "RS256"}, "file", "1024 bits, at least 2048"),
        ({"algorithm": "HS256"}, "algorithm", "'ES256'"),
        ({"algorithm": "none"}, "algorithm", "'ES256'"),
        ({"id": "two words"}, "id", "must match"),
    ],
)
def test_key_that_cannot_serve_is_named(verification: Verify, changes: dict[str, Any], where: str, said: str) -> None:
    """Before anything starts, at its line, with its id."""
    folder = verification({**KEY, **changes})
    assert said in told(folder, f".keys[0].{where}")


def test_draft_need_not_be_signed_and_a_signature_must_hold(verification: Verify, tmp_path: Path) -> None:
    """For the commands that never bring anything into force; the daemon's own reading asks for a signature."""
    settings = verification(KEY).load().policy
    unsigned = put(tmp_path / "draft.tar.gz", packed(contents()))
    with pytest.raises(BundleRefused, match="nobody signed"):
        decision_point.read(settings, unsigned)
    assert decision_point.draft(settings, unsigned).origin.signer == ""
    foreign = put(tmp_path / "foreign.tar.gz", packed(signed(contents(), KeyPair())))
    with pytest.raises(BundleRefused, match="no configured key made this signature"):
        decision_point.draft(settings, foreign)


def test_dates_of_a_signature_are_compared_with_the_clock(verification: Verify, tmp_path: Path) -> None:
    pair = KeyPair()
    folder = verification(KEY)
    pair.write(folder.path)
    settings = folder.load().policy
    good = put(tmp_path / "good.tar.gz", packed(signed(contents(), pair, exp=4102444800)))
    assert decision_point.read(settings, good).origin.signer == "release"
    old = put(tmp_path / "old.tar.gz", packed(signed(contents(), pair, exp=1)))
    with pytest.raises(BundleRefused, match="expired"):
        decision_point.read(settings, old)
