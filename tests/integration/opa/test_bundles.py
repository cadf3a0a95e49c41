"""Bundles that OPA itself builds and signs are read here, and what is made here is taken by OPA; both refuse alike."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from kblockd.policy.bundles.bundle import Origin, read
from kblockd.policy.bundles.jws import Token
from kblockd.policy.faults import BundleRefused
from kblockd.policy.opa.access import RemoteAccess
from kblockd.policy.opa.tarball import build
from tests.contract.policy.bundles import KeyPair, contents, packed, put, signed, trusting
from tests.contract.policy.remote import Server, Watched
from tests.contract.policy.support import HANG_SECONDS, files, opa_binary, write

RSA = rsa.generate_private_key(65537, 2048)
PAIRS = [
    KeyPair(),
    KeyPair(algorithm="RS256", private=RSA),
    KeyPair(algorithm="PS256", private=RSA),
    KeyPair(algorithm="EdDSA", private=ed25519.Ed25519PrivateKey.generate()),
]
DOCUMENTS = {
    "data.json": '{"limits": {"refund": 1.50, "é": "<&>\\u2028\\u0008"}, "a": -0, "b": 1E2}',
    "lists/data.yaml": "kinds: [on, 2, 1.5e-7, 3.0]\ntext: |\n  two\n  lines\n",
    "lists/more/data.json": "[null, true, []]",
    ".manifest": '{"revision": "v 12", "roots": [""], "metadata": {"by": "release"}}',
}


def opa(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """``opa …`` in a folder; its exit code is for the test to look at."""
    command = [str(opa_binary()), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)


def built(folder: Path, pair: KeyPair, *arguments: str | Path) -> Path:
    """The archive of the bundle in ``folder``, signed by the pair."""
    private, _ = pair.write(folder.parent)
    file = folder.parent / "built.tar.gz"
    signing = ("--signing-key", private, "--signing-alg", pair.algorithm)
    done = opa("build", "--bundle", ".", "--output", file, *signing, *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Policies with documents of every kind."""
    for name, text in {**files(), **DOCUMENTS}.items():
        file = tmp_path / "bundle" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "bundle"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.algorithm)
def test_bundle_that_opa_built_and_signed(bundle: Path, pair: KeyPair) -> None:
    """Digests of documents included: OPA wrote each as it reads it."""
    found = read(built(bundle, pair, "--verification-key-id", pair.id), trusting(pair))
    assert found.origin == Origin("v 12", "release", "")
    unsigned = read(bundle)
    assert found.data == unsigned.data
    assert sorted(found.modules.values()) == sorted(unsigned.modules.values())


def test_claims_of_a_file_and_no_key_id(bundle: Path) -> None:
    (bundle.parent / "claims.json").write_text('{"scope": "decide", "iss": "release"}')
    file = built(bundle, PAIRS[0], "--claims-file", bundle.parent / "claims.json")
    assert read(file, trusting(PAIRS[0], scope="decide")).origin.signature_scope == "decide"
    with pytest.raises(BundleRefused, match="signed for the scope 'decide', not for ''"):
        read(file, trusting(PAIRS[0]))


def test_folder_that_opa_signed(bundle: Path) -> None:
    """``opa sign`` digests the files as they stand, each document by its values."""
    private, _ = PAIRS[0].write(bundle.parent)
    done = opa("sign", "--bundle", ".", "--signing-key", private, "--signing-alg", "ES256", folder=bundle)
    assert done.returncode == 0, done.stderr
    assert read(bundle, trusting(PAIRS[0])).origin.signer == "release"
    (bundle / "data.json").write_text(DOCUMENTS["data.json"].replace("1.50", "1.5"))
    with pytest.raises(BundleRefused, match=r"data\.json: key release signed another content"):
        read(bundle, trusting(PAIRS[0]))


def _wrong() -> dict[str, bytes]:
    release, good = PAIRS[0], signed(contents(), PAIRS[0])
    return {
        "unsigned": packed(contents()),
        "wrong key": packed(signed(contents(), KeyPair())),
        "other content": packed({**good, "decision.rego": good["authz.rego"]}),
        "other manifest": packed({**good, ".manifest": b'{"revision":"v13","roots":[""]}'}),
        "unsigned file": packed({**good, "x.rego": b"package x\n"}),
        "missing file": packed({name: data for name, data in good.items() if name != "authz.rego"}),
        "another scope": packed(signed(contents(), release, scope="x")),
        "outside the roots": packed(signed({**contents(), ".manifest": b'{"roots":["other"]}'}, release)),
        "overlapping roots": packed(signed({**contents(), ".manifest": b'{"roots":["a","a/b"]}'}, release)),
        "documents that clash": packed(signed({**contents(), "a/data.json": b"2"}, release)),
        "cut": packed(good)[:-20],
    }


@pytest.mark.parametrize("name", ["good", *_wrong()])
def test_pol_05_opa_takes_and_refuses_the_same_archives(tmp_path: Path, name: str) -> None:
    """The archives of the tests are what OPA means by signed, and none passes here that OPA would refuse."""
    data = packed(signed(contents(), PAIRS[0])) if name == "good" else _wrong()[name]
    file = put(tmp_path / "b.tar.gz", data)
    _, public = PAIRS[0].write(tmp_path)
    key = ("--verification-key", public, "--verification-key-id", "release", "--signing-alg", "ES256")
    private = tmp_path / "release.pem"
    done = opa("build", "--bundle", file, "--output", "out.tar.gz", *key, "--signing-key", private, folder=tmp_path)
    if name == "good":
        assert done.returncode == 0, done.stderr
        assert read(file, trusting(PAIRS[0])).origin.signer == "release"
        return
    assert done.returncode != 0
    with pytest.raises(BundleRefused):
        read(file, trusting(PAIRS[0]))


async def test_bundle_of_policy_check_is_signed_and_served_by_opa(tmp_path: Path) -> None:
    """What ``policy check --bundle`` writes, signed by ``opa build``, and an OPA that takes nothing unsigned."""
    made = read(write(tmp_path / "policy", files()))
    put(tmp_path / "ours.tar.gz", build(made))
    private, public = PAIRS[0].write(tmp_path)
    signing = ("--signing-key", private, "--signing-alg", "ES256", "--verification-key-id", "release")
    verifying = ("--verification-key", str(public), "--verification-key-id", "release", "--signing-alg", "ES256")
    server = Server(tmp_path, *verifying)
    done = opa("build", "--bundle", "ours.tar.gz", "--output", server.file, *signing, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read(server.file, trusting(PAIRS[0])).origin == Origin(made.revision, "release", "")
    watched = Watched(RemoteAccess(server.url), tmp_path / "revisions.jsonl")
    watched.passes(made)
    server.start()
    try:
        await watched.settles()
        assert watched.engine.status().revision == made.revision
    finally:
        await watched.engine.close()
        server.stop()


def test_what_is_kept_names_the_digests_that_were_signed(bundle: Path) -> None:
    """Years later: the token in the payload of the activation speaks of the modules beside it."""
    kept = json.loads(read(built(bundle, PAIRS[0], "--verification-key-id", "release"), trusting(PAIRS[0])).to_json())
    listed = Token.read(kept["signature"]).claims["files"]
    assert kept["modules"].keys() == {row["name"] for row in listed if row["name"].endswith(".rego")}
