"""``verify_offline.py`` as a real process, isolated, with and without ``cryptography``; and its functions."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kblockd.domain.canonical import canonical
from kblockd.evidence import dsse, verify_offline
from kblockd.evidence.ceremony import add_key, init_keys, retire
from kblockd.evidence.jwks import PublicKey, Role
from kblockd.evidence.keyring import KeyRing
from kblockd.evidence.keys import read_private
from kblockd.evidence.receipts import sign_receipt, sign_result, sign_statement
from kblockd.evidence.statements import SealedState
from tests.unit.evidence import samples
from tests.unit.evidence.samples import ACTION, ORIGIN, NaiveLog, World, note_line

BACKENDS = ["cryptography", "openssl"]


def _run(place: Path, world: World, backend: str, *more: str, **changed: bytes | str | None) -> tuple[int, str, str]:
    """The file alone, copied away from the package; ``-S`` hides what is installed, so openssl has to do."""
    script = shutil.copy(verify_offline.__file__, place / "verify_offline.py")
    flags = ["-I"] if backend == "cryptography" else ["-I", "-S"]
    command = [sys.executable, *flags, str(script), *more]
    for name, data in world.parts(**changed).items():
        if isinstance(data, bytes):
            (place / name).write_bytes(data)
            command += [f"--{name.replace('_', '-')}", str(place / name)]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_it_needs_nothing_but_the_standard_library() -> None:
    source = Path(verify_offline.__file__).read_text()
    imports = [line.split()[1] for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert "kblockd" not in source.replace("kblockd.dev", "").partition('"""\n\nfrom')[2]
    assert {name.partition(".")[0] for name in imports} <= sys.stdlib_module_names


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_three_verdicts_of_a_real_process(world: World, tmp_path: Path, backend: str) -> None:
    status, out, _ = _run(tmp_path, world, backend, "--json", "--action", ACTION, "--state", "succeeded")
    found = json.loads(out)
    assert (status, found["verdict"], found["facts"]["backend"]) == (0, "verified", backend)
    assert (found["facts"]["index"], found["facts"]["treeSize"], found["facts"]["origin"]) == (6, 11, ORIGIN)
    status, out, _ = _run(tmp_path, world, backend, proof=None)
    assert (status, out) == (3, "signed, not logged: no inclusion proof was given\n")
    status, out, _ = _run(tmp_path, world, backend, "--state", "failed")
    assert (status, out) == (1, "not verified: the state is 'succeeded', not 'failed'\n")
    tampered = world.result.envelope.replace(b'"sig":"', b'"sig":"AAAA')
    document = json.loads(world.result.envelope)
    document["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    for envelope in (tampered, json.dumps(document).encode()):
        status, out, _ = _run(tmp_path, world, backend, result=envelope)
        assert (status, out) == (1, "not verified: the signature of the result does not fit\n")


def test_standard_input_and_wrong_usage(world: World, tmp_path: Path) -> None:
    (tmp_path / "keyset").write_bytes(world.ring.keyset_envelope)
    (tmp_path / "result").write_bytes(world.result.envelope)
    command = [sys.executable, "-I", verify_offline.__file__, "--root", str(world.folder / "root.pub.pem")]
    command += ["--keyset", str(tmp_path / "keyset"), "--result", str(tmp_path / "result"), "--receipt"]
    done = subprocess.run([*command, "-"], input=world.receipt.envelope, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"")
    done = subprocess.run([*command, str(tmp_path / "absent")], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"absent: No such file" in done.stderr
    done = subprocess.run(command[:3], capture_output=True, timeout=60)
    assert done.returncode == 2


def _verdict(world: World, **changed: bytes | str | None) -> verify_offline.ReceiptVerdict:
    return verify_offline.verify(**world.parts(**changed))  # type: ignore[arg-type]  # parts are named alike


@pytest.mark.parametrize("size", range(1, 17))
def test_inclusion_proofs_of_every_size_and_place(world: World, size: int) -> None:
    leaves = [world.receipt.payload if n % 2 else f"leaf {n}".encode() for n in range(size)]
    log = NaiveLog(leaves)
    for index in range(size):
        expected = "verified" if index % 2 else "not_included"
        assert _verdict(world, proof=log.proof(index, size, world.ring.log)).code == expected


@pytest.mark.parametrize("size", range(1, 17))
def test_a_place_outside_the_tree_is_refused_although_its_path_fits(world: World, size: int) -> None:
    """The index counts: key ranges hang on it, so no second index may lead to the same root."""
    leaves = [world.receipt.payload] * size
    key = world.ring.log
    for index in range(size):
        honest = NaiveLog(leaves).proof(index, size, key)
        for wrong in [index + (1 << power) for power in range(1, 6)]:
            forged = honest.replace(b"index %d\n" % index, b"index %d\n" % wrong)
            assert wrong < size or _verdict(world, proof=forged).code == "not_included"


@pytest.mark.parametrize("old", range(1, 16))
def test_consistency_proofs_of_every_pair_of_sizes(world: World, old: int) -> None:
    log, key = world.log, world.ring.log
    rewritten = NaiveLog([b"other", *log.leaves[1:]])
    for new in range(max(old, 7), 17):
        path = b"\n".join(base64.b64encode(h) for h in log.consistency(old, new))
        older, proof = log.checkpoint(old, key), log.proof(6, new, key)
        honest = _verdict(world, proof=proof, older_checkpoint=older, consistency=path)
        assert (honest.code, honest.facts["extends"]) == ("verified", old)
        forged = rewritten.checkpoint(old, key)
        assert _verdict(world, proof=proof, older_checkpoint=forged, consistency=path).code == "rewritten"
        if old < new:
            cut = path.rpartition(b"\n")[0]
            alone = _verdict(world, proof=proof, older_checkpoint=older)
            assert alone.code == "no_consistency"
            assert f"kblockctl ledger proof --old-size {old} --new-size {new}" in alone.reason
            assert _verdict(world, proof=proof, older_checkpoint=older, consistency=cut).code == "rewritten"


def test_the_naive_log_gives_the_roots_of_the_certificate_transparency_vectors() -> None:
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    log = NaiveLog([bytes.fromhex(leaf) for leaf in leaves])
    assert log.root(1).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert log.root(8).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_the_example_of_c2sp_signed_note_verifies() -> None:
    raw = base64.b64decode("AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")[1:]
    line = base64.b64decode(
        "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
    )
    assert verify_offline._note_key_id("example.com/foo", raw) == line[:4] == bytes.fromhex("530d903a")
    check = verify_offline._backend("auto", {})
    assert check(raw, b"This is an example message.\n", line[4:])
    assert not check(raw, b"This is an example message.", line[4:])


def test_rcp_01_a_cut_tail_is_noticed_against_an_older_checkpoint(world: World) -> None:
    older = world.log.checkpoint(12, world.ring.log)
    assert _verdict(world, older_checkpoint=older).code == "truncated"
    other = world.log.checkpoint(5, world.ring.log, origin="kblockd.example/test/2")
    assert _verdict(world, older_checkpoint=other).code == "truncated"
    empty = NaiveLog([]).checkpoint(0, world.ring.log)
    assert _verdict(world, older_checkpoint=empty).code == "verified"


def test_rcp_08_a_receipt_of_a_retired_key_verifies_and_says_so(world: World) -> None:
    add_key(world.folder, world.root_file, Role.RESULT, from_index=7)
    add_key(world.folder, world.root_file, Role.LOG, from_index=9)
    now = world.reloaded()
    found = _verdict(now)
    assert found.verdict == "verified"
    assert found.reason.endswith("signed by a key retired since")
    assert found.facts["keys"] == {
        name: {"kid": world.ring.result.key_id, "retired": True} for name in ("result", "receipt")
    }


def test_rcp_08_an_unknown_key_is_a_verdict_of_its_own(world: World, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    stranger = samples.make_world(tmp_path / "b")
    assert _verdict(world, receipt=stranger.receipt.envelope).code == "unknown_key"
    assert _verdict(world, keyset=stranger.ring.keyset_envelope).code == "unknown_key"  # by another root
    assert _verdict(world, root=stranger.root_pem).code == "unknown_key"


def test_rcp_08_a_stolen_key_cannot_backdate_or_be_used_late(world: World) -> None:
    add_key(world.folder, world.root_file, Role.RESULT, from_index=7)
    now = world.reloaded()
    late = NaiveLog([*world.log.leaves[:6], b"filler", world.receipt.payload, b"more"])
    assert _verdict(now, proof=late.proof(7, 9, now.ring.log)).code == "key_out_of_range"
    early = sign_receipt(samples.receipt(world.result), now.ring)
    assert _verdict(now, receipt=early.envelope).code == "key_out_of_range"
    retire(world.folder, world.root_file, world.ring.result.key_id, to_index=5)
    (keyset,) = [(world.folder / "keyset.dsse.json").read_bytes()]
    assert _verdict(world, keyset=keyset).code == "key_out_of_range"


def test_checkpoints_while_the_log_key_rotates(world: World) -> None:
    old = world.ring.log
    add_key(world.folder, world.root_file, Role.LOG, from_index=9)
    now = world.reloaded()
    new = now.ring.log
    assert _verdict(now, proof=world.log.proof(6, 9, old)).verdict == "verified"
    assert _verdict(now, proof=world.log.proof(6, 9, old, new)).verdict == "verified"
    assert _verdict(now, proof=world.log.proof(6, 10, old, new)).verdict == "verified"
    assert _verdict(now, proof=world.log.proof(6, 10, new)).verdict == "verified"
    for proof in (world.log.proof(6, 10, old), world.log.proof(6, 9, new), world.log.proof(6, 9)):
        assert _verdict(now, proof=proof).code == "bad_checkpoint"


def test_roles_are_held_apart(world: World) -> None:
    ring = world.ring
    for signer in (ring.log, ring.approval):
        signed = sign_statement(samples.receipt(world.result), signer)
        assert _verdict(world, receipt=signed.envelope).code == "wrong_role"
    assert _verdict(world, proof=world.log.proof(6, 11, ring.result)).code == "bad_checkpoint"


def test_a_receipt_about_another_result_is_refused(world: World) -> None:
    other = sign_result(replace(samples.result(), attempts=2), world.ring)
    assert _verdict(world, result=other.envelope).code == "not_bound"
    for change in (
        {"action": "f" * 64},
        {"execution_id": "exe_2"},
        {"state": SealedState.FAILED},
        {"approval": None},
        {"approval": "f" * 64},
    ):
        issued = sign_receipt(replace(samples.receipt(world.result), **change), world.ring)
        assert _verdict(world, receipt=issued.envelope).code == "not_bound"
    assert _verdict(world, result=world.receipt.envelope).code == "bad_statement"
    assert _verdict(world, receipt=world.result.envelope).code == "bad_statement"


def test_what_the_caller_expects_is_compared(world: World) -> None:
    assert _verdict(world, action=ACTION, state="succeeded").verdict == "verified"
    assert _verdict(world, action="f" * 64).code == "other_action"
    assert _verdict(world, action="f" * 64, proof=None).code == "other_action"
    assert _verdict(world, state="failed", proof=None).code == "other_state"


def test_another_log_is_refused(world: World) -> None:
    proof = world.log.proof(6, 11, world.ring.log, origin="kblockd.example/test/2")
    assert _verdict(world, proof=proof).code == "other_log"


def test_extra_data_and_foreign_signatures_are_ignored(world: World, tmp_path: Path) -> None:
    init_keys(tmp_path / "w", tmp_path / "w.pem")
    witness = KeyRing.load(tmp_path / "w").log
    proof = world.log.proof(6, 11, world.ring.log)
    extra = proof.replace(b"\nindex", b"\nextra aGVsbG8=\nindex", 1)
    assert _verdict(world, proof=extra).verdict == "verified"
    text = proof.partition(b"\n\n")[2].partition(b"\n\n")[0] + b"\n"
    cosigned = proof + b"".join(note_line(f"witness{n}.example", witness, text) for n in range(16))
    assert _verdict(world, proof=cosigned).verdict == "verified"
    forged = proof + note_line(ORIGIN, world.ring.log, b"another text")
    assert _verdict(world, proof=forged).code == "bad_checkpoint"  # a known key that does not fit spoils the note


def _edits(proof: bytes) -> list[bytes]:
    lines = proof.decode().split("\n")
    size = lines.index(ORIGIN) + 1
    root = hashlib.sha256(b"other").digest()
    whole = proof.decode()
    return [
        edit.encode()
        for edit in (
            "",
            whole.replace("@v1", "@v2"),
            whole.replace("index 6", "index 06"),
            whole.replace("index 6", "index -6"),
            whole.replace("index 6", "index 7"),
            whole.replace("index 6", "index 11"),
            whole.replace("index 6", f"index {10**30}"),
            whole.replace("index 6", "idx 6"),
            whole.replace("index 6\n", "index 6\nAAAA\n"),
            whole.replace(lines[2] + "\n", "", 1),
            whole.replace(lines[2] + "\n", lines[2] + "\n" + lines[2] + "\n", 1),
            whole.replace(lines[2], base64.b64encode(root).decode(), 1),
            whole.replace(f"\n{lines[size]}\n", "\n12\n", 1),
            whole.replace(f"\n{lines[size]}\n", "\n011\n", 1),
            whole.replace(lines[size + 1], base64.b64encode(root).decode()),
            whole.replace(lines[size + 1] + "\n", lines[size + 1] + "\nextension\n"),
            whole.replace("— ", "- "),
            whole.replace("\n\n— ", "\n— "),
            whole.rstrip("\n"),
            whole + "\n",
            whole.replace("\n", "\r\n"),
            whole + "— x\n",
            whole + f"— a b c\n— {ORIGIN} AAAA\n",
            whole + "— witness.example AAAAAAA=\n" * 40,
        )
    ]


def test_every_edit_of_a_proof_is_refused(world: World) -> None:
    proof = world.log.proof(6, 11, world.ring.log)
    for edit in _edits(proof):
        assert edit != proof
        found = _verdict(world, proof=edit)
        assert found.verdict == "not verified", edit.decode()


def test_an_older_checkpoint_must_be_signed_by_the_log_itself(world: World) -> None:
    for signer in (world.ring.result, world.ring.approval):
        older = world.log.checkpoint(11, signer)
        assert _verdict(world, older_checkpoint=older).code == "bad_checkpoint"


def test_a_checkpoint_with_extension_lines_is_refused_although_it_is_signed(world: World) -> None:
    text = world.log.checkpoint(11).rstrip(b"\n") + b"\nextension\n"
    note = text + b"\n" + note_line(ORIGIN, world.ring.log, text)
    head = world.log.proof(6, 11).partition(b"\n\n")[0]
    assert _verdict(world, proof=head + b"\n\n" + note).code == "bad_checkpoint"


def test_a_key_twice_and_stray_bits_are_refused(world: World) -> None:
    whole = world.result.envelope
    twice = whole.replace(b'"payloadType"', b'"payloadType":"x","payloadType"', 1)
    assert _verdict(world, result=twice).code == "bad_json"
    sig = json.loads(whole)["signatures"][0]["sig"]
    assert sig.endswith("==")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    stray = sig[:-3] + alphabet[alphabet.index(sig[-3]) + 1] + "=="
    assert base64.b64decode(stray) == base64.b64decode(sig)
    assert _verdict(world, result=whole.replace(sig.encode(), stray.encode())).code == "bad_base64"


def test_a_key_set_that_the_root_should_not_have_signed_is_refused(world: World) -> None:
    root = read_private(world.root_file, None, uid=os.geteuid())
    document = json.loads(world.ring.keyset.payload())
    first, *rest = document["keys"]
    (as_root,) = [PublicKey(Role.LOG, root.public_key, 0).jwk()]
    wrong: list[object] = [
        [first, {**first, "role": "log"}],
        [{**first, "kid": rest[0]["kid"]}, *rest],
        [first, as_root],
        [{**first, "crv": "X25519"}, *rest],
        [{**first, "role": None}, *rest],
        [{**first, "x": first["x"][:40]}, *rest],
        ["text"],
    ]
    for members in wrong:
        payload = canonical({**document, "keys": members})
        found = _verdict(world, keyset=dsse.sign(dsse.JWKS_TYPE, payload, root))
        assert found.code in ("bad_keyset", "bad_base64")


def test_hostile_texts_are_refused_without_a_crash(world: World) -> None:
    hostile = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"a":1,"a":2}',
        b"[" * 100_000,
        b"9" * 10_000,
        b'{"payload":NaN}',
    ]
    for text in hostile:
        for name in ("result", "receipt", "keyset", "root", "proof", "older_checkpoint"):
            found = _verdict(world, **{name: text})
            assert found.verdict == "not verified"
            assert found.exit_code == 1


def test_without_any_backend_nothing_is_verified(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_offline, "_cryptography", lambda: None)
    assert _verdict(world).facts["backend"] == "openssl"
    assert _verdict(world, backend="cryptography").code == "no_backend"
    monkeypatch.setenv("PATH", "/nowhere")
    assert _verdict(world).code == "no_backend"
