#!/usr/bin/env python3
"""Verifies a RESULT and its RECEIPT, offline and alone: ``python3 -I verify_offline.py --help``.

Needs only the standard library; Ed25519 uses the package ``cryptography`` if installed, else the openssl binary. It
deliberately shares no code with the rest of kblockd and trusts only the pinned public root key.

  root key -> key set (DSSE) -> RESULT and RECEIPT (DSSE) -> Merkle inclusion proof -> checkpoint signed by the log

Verdicts and exit codes:
  0  verified             everything is valid, and the receipt is in the ledger under a checkpoint signed by the log
  3  signed, not logged   the signatures are valid, but without an inclusion proof key ranges could not be checked
  1  not verified         the reason follows
  2  wrong usage, or a file that cannot be read

Formats: DSSE v1.0.2, in-toto Statement v1, RFC 7517/7638/8037 (JWKS), RFC 6962/9162 (Merkle tree), and C2SP
signed-note, tlog-checkpoint and tlog-proof@v1. An older checkpoint from elsewhere shows that nothing was cut off or
rewritten since: the newer one must extend it, by a consistency proof (one base64 hash per line) if the sizes differ.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

VERIFIED = "verified"
NOT_LOGGED = "signed, not logged"
REFUSED = "not verified"
EXIT = {VERIFIED: 0, NOT_LOGGED: 3, REFUSED: 1}

STATEMENT = "https://in-toto.io/Statement/v1"
STATEMENT_TYPE = "application/vnd.in-toto+json"
JWKS_TYPE = "application/jwk-set+json"
PREDICATE = "https://kblockd.dev/%s/v1"
SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
MAX_BYTES = 1 << 20
MAX_SIGNATURES = 32

Check = Callable[[bytes, bytes, bytes], bool]  # public key, message, signature


@dataclass(frozen=True)
class ReceiptVerdict:
    """``verdict`` is one of the three; ``code`` a stable word, ``reason`` a sentence, ``facts`` the values read."""

    verdict: str
    code: str
    reason: str
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, 3 or 1."""
        return EXIT[self.verdict]

    def document(self) -> dict[str, object]:
        """The output of ``--json``."""
        return {"verdict": self.verdict, "code": self.code, "reason": self.reason, "facts": self.facts}


@dataclass(frozen=True)
class Key:
    """A public key of the key set; ``last`` is None while it is active."""

    kid: str
    role: str
    raw: bytes
    first: int
    last: int | None

    def covers(self, index: int) -> bool:
        """Whether it was valid at this ledger index."""
        return self.first <= index and (self.last is None or index <= self.last)


@dataclass(frozen=True)
class Checkpoint:
    """A signed tree head: origin, size, root hash, and the note's text and signatures (name, key id, signature)."""

    origin: str
    size: int
    root: bytes
    text: bytes
    signatures: tuple[tuple[str, bytes, bytes], ...]


class Refused(Exception):
    """The evidence does not verify."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def verify(
    *,
    result: bytes,
    receipt: bytes,
    root: bytes,
    keyset: bytes,
    proof: bytes | None = None,
    action: str | None = None,
    state: str | None = None,
    older_checkpoint: bytes | None = None,
    consistency: bytes | None = None,
    backend: str = "auto",
) -> ReceiptVerdict:
    """The verdict on the DSSE envelopes ``result`` and ``receipt``; never raises, whatever the input.

    ``root`` is the pinned public key (PEM), ``keyset`` the DSSE key set, ``proof`` a tlog-proof@v1 with its checkpoint.
    ``action`` (hex) and ``state`` are the expected values. ``backend``: auto, cryptography or openssl.
    """
    facts: dict[str, object] = {}
    try:
        check = _backend(backend, facts)
        keys = _keys(keyset, _public_pem(root), check)
        result_payload, result_key = _dsse(result, STATEMENT_TYPE, keys, check, "result")
        receipt_payload, receipt_key = _dsse(receipt, STATEMENT_TYPE, keys, check, "receipt")
        signers = {"result": result_key, "receipt": receipt_key}
        _roles(signers)
        _bind(result_payload, receipt_payload, facts)
        _expect(facts, action, state)
        facts["keys"] = {name: {"kid": key.kid, "retired": key.last is not None} for name, key in signers.items()}
        if proof is None:
            return ReceiptVerdict(NOT_LOGGED, "not_logged", "no inclusion proof was given", facts)
        checkpoint = _logged(proof, receipt_payload, signers, keys, check, facts)
        if older_checkpoint is not None:
            facts["extends"] = _extends(older_checkpoint, checkpoint, consistency, keys, check)
    except Refused as refused:
        return ReceiptVerdict(REFUSED, refused.code, refused.reason, facts)
    retired = sorted(name for name, key in signers.items() if key.last is not None)
    note = f"; {' and '.join(retired)} signed by a key retired since" if retired else ""
    place = f"{facts['state']!r}, at index {facts['index']} of {facts['origin']!r}"
    return ReceiptVerdict(VERIFIED, "verified", f"{place}{note}", facts)


# Signatures


def _backend(name: str, facts: dict[str, object]) -> Check:
    check = _cryptography() if name in ("auto", "cryptography") else None
    if check is not None:
        facts["backend"] = "cryptography"
        return check
    binary = shutil.which("openssl")
    if binary is None or name == "cryptography":
        raise Refused("no_backend", "neither the package cryptography nor the openssl binary is available; install one")
    facts["backend"] = "openssl"
    return lambda key, message, signature: _openssl(binary, key, message, signature)


def _cryptography() -> Check | None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return None

    def check(key: bytes, message: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return check


def _openssl(binary: str, key: bytes, message: bytes, signature: bytes) -> bool:
    pem = base64.encodebytes(SPKI_PREFIX + key).decode()
    with tempfile.TemporaryDirectory() as folder:
        files = {"key.pem": f"-----BEGIN PUBLIC KEY-----\n{pem}-----END PUBLIC KEY-----\n".encode()}
        files.update({"message": message, "signature": signature})
        for name, data in files.items():
            with open(os.path.join(folder, name), "wb") as stream:
                stream.write(data)
        command = [binary, "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "message"]
        command += ["-sigfile", "signature"]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)  # noqa: S603
    return done.returncode == 0 and b"Verified Successfully" in done.stdout


def _dsse(envelope: bytes, payload_type: str, keys: dict[str, Key], check: Check, what: str) -> tuple[bytes, Key]:
    """(payload, key); requires exactly one signature, by a key of the set, over the pre-authentication encoding."""
    document = _json(envelope, what)
    if set(document) != {"payload", "payloadType", "signatures"}:
        raise Refused("bad_envelope", f"the {what} envelope must hold exactly payload, payloadType and signatures")
    signatures = document["signatures"]
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise Refused("bad_envelope", f"the {what} envelope must hold exactly one signature")
    if set(signatures[0]) != {"keyid", "sig"} or document["payloadType"] != payload_type:
        raise Refused("bad_envelope", f"the {what} envelope needs keyid and sig, and payloadType {payload_type}")
    payload = _base64(document["payload"], f"the {what} payload")
    signature = _base64(signatures[0]["sig"], f"the {what} signature")
    key = keys.get(signatures[0]["keyid"]) if isinstance(signatures[0]["keyid"], str) else None
    if key is None:
        raise Refused("unknown_key", f"the {what} is signed by a key that is not in the key set")
    kind = payload_type.encode()
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    if len(signature) != 64 or not check(key.raw, encoded, signature):
        raise Refused("bad_signature", f"the signature of the {what} does not fit")
    return payload, key


# Keys


def _keys(keyset: bytes, root: bytes, check: Check) -> dict[str, Key]:
    """Keys by id, after verifying the root's signature."""
    pinned = Key(_thumbprint(root), "root", root, 0, None)
    payload, _ = _dsse(keyset, JWKS_TYPE, {pinned.kid: pinned}, check, "key set")
    by_id: dict[str, Key] = {}
    for member in _list(_json(payload, "key set").get("keys"), "keys of the key set"):
        key = _key(member)
        if member.get("kid") != key.kid or key.kid in by_id or key.raw == root:
            raise Refused("bad_keyset", "a key of the key set has a wrong kid, two roles, or is the root itself")
        by_id[key.kid] = key
    return by_id


def _key(member: Any) -> Key:
    if not isinstance(member, dict) or member.get("kty") != "OKP" or member.get("crv") != "Ed25519":
        raise Refused("bad_keyset", "the key set holds something that is not an Ed25519 key")
    text, role = member.get("x"), member.get("role")
    raw = _base64(text.replace("-", "+").replace("_", "/") + "=" if isinstance(text, str) else None, "x")
    if len(raw) != 32 or not isinstance(role, str):
        raise Refused("bad_keyset", "a key of the key set has no role, or not 32 bytes")
    last = _decimal(member["toIndex"], "toIndex") if "toIndex" in member else None
    return Key(_thumbprint(raw), role, raw, _decimal(member.get("fromIndex"), "fromIndex"), last)


def _roles(signers: dict[str, Key]) -> None:
    for name, key in signers.items():
        if key.role != "result":
            raise Refused("wrong_role", f"the {name} is signed by a {key.role!r} key instead of a result key")


def _thumbprint(raw: bytes) -> str:
    """RFC 7638."""
    required = {"crv": "Ed25519", "kty": "OKP", "x": _url(raw)}
    return _url(hashlib.sha256(json.dumps(required, separators=(",", ":")).encode()).digest())


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _public_pem(pem: bytes) -> bytes:
    match = re.search(rb"-----BEGIN PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+?)\s*-----END PUBLIC KEY-----", pem)
    der = _base64("".join(match.group(1).decode().split()), "the root key") if match else b""
    if not der.startswith(SPKI_PREFIX) or len(der) != len(SPKI_PREFIX) + 32:
        raise Refused("bad_root", "the root is not an Ed25519 public key in PEM")
    return der[len(SPKI_PREFIX) :]


# Statements


def _bind(result_payload: bytes, receipt_payload: bytes, facts: dict[str, object]) -> None:
    """Checks that the receipt is about this result, and both about the same action, execution and state."""
    result, its = _statement(result_payload, "result")
    receipt, subjects = _statement(receipt_payload, "receipt")
    digest = hashlib.sha256(result_payload).hexdigest()
    if subjects.get("result") != digest:
        raise Refused("not_bound", "the receipt is about another result: its subject is not this result's SHA-256")
    approval = result.get("approval")
    approved = approval.get("digest") if isinstance(approval, dict) else None
    pairs = [("action", its.get("action"), subjects.get("action")), ("approval", approved, subjects.get("approval"))]
    pairs += [(name, result.get(name), receipt.get(name)) for name in ("executionId", "state")]
    for name, ours, theirs in pairs:
        if ours != theirs or (ours is None and name != "approval"):
            raise Refused("not_bound", f"result and receipt differ in {name}")
    facts.update({name: result.get(name) for name in ("executionId", "tenant", "tool", "state", "resultClass", "code")})
    facts.update({"action": its["action"], "resultSha256": digest, "issuedAt": receipt.get("issuedAt")})
    ledger = receipt.get("ledger")
    facts["origin"] = ledger.get("origin") if isinstance(ledger, dict) else None


def _statement(payload: bytes, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(predicate, subject name -> SHA-256)."""
    document = _json(payload, kind)
    predicate = document.get("predicate")
    if document.get("_type") != STATEMENT or document.get("predicateType") != PREDICATE % kind:
        raise Refused("bad_statement", f"the payload is not a {kind} of version 1")
    if set(document) != {"_type", "predicateType", "subject", "predicate"} or not isinstance(predicate, dict):
        raise Refused("bad_statement", f"the {kind} is not an in-toto Statement of version 1")
    subjects: dict[str, str] = {}
    for subject in _list(document["subject"], f"subject of the {kind}"):
        digest = subject.get("digest") if isinstance(subject, dict) else None
        value = digest.get("sha256") if isinstance(digest, dict) else None
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value) or subject.get("name") in subjects:
            raise Refused("bad_statement", f"the {kind} has a subject without a SHA-256, or one twice")
        subjects[subject.get("name")] = value
    return predicate, subjects


def _expect(facts: dict[str, object], action: str | None, state: str | None) -> None:
    if action is not None and facts["action"] != action:
        raise Refused("other_action", f"about the action {facts['action']!r}, not {action!r}")
    if state is not None and facts["state"] != state:
        raise Refused("other_state", f"the state is {facts['state']!r}, not {state!r}")


# The ledger


def _logged(
    proof: bytes, leaf: bytes, signers: dict[str, Key], keys: dict[str, Key], check: Check, facts: dict[str, object]
) -> Checkpoint:
    """Checks that the receipt's payload is the leaf at the proof's index, under a checkpoint of the receipt's log."""
    index, path, checkpoint = _tlog_proof(proof)
    _signed_by_log(checkpoint, keys, check)
    if checkpoint.origin != facts["origin"]:
        raise Refused("other_log", f"the checkpoint is of {checkpoint.origin!r}, the receipt names {facts['origin']!r}")
    facts.update({"index": index, "treeSize": checkpoint.size, "rootHash": checkpoint.root.hex()})
    if _root_from_inclusion(index, checkpoint.size, hashlib.sha256(b"\0" + leaf).digest(), path) != checkpoint.root:
        raise Refused("not_included", "the inclusion proof does not lead from this receipt to the checkpoint")
    for name, key in signers.items():
        if not key.covers(index):
            raise Refused("key_out_of_range", f"the key of the {name} was not valid at index {index}")
    return checkpoint


def _tlog_proof(proof: bytes) -> tuple[int, list[bytes], Checkpoint]:
    """(index, hashes, checkpoint) of C2SP tlog-proof@v1; extra data is ignored, as it is not authenticated."""
    head, separator, note = proof.partition(b"\n\n")
    lines = _text(head, "proof").split("\n")
    if lines[0] != "c2sp.org/tlog-proof@v1" or not separator:
        raise Refused("bad_proof", "not a c2sp.org/tlog-proof@v1")
    body = lines[2:] if len(lines) > 1 and lines[1].startswith("extra ") else lines[1:]
    if not body or not body[0].startswith("index ") or len(body) > 65:
        raise Refused("bad_proof", "the proof needs an index line and at most 64 hashes")
    return _decimal(body[0][6:], "index"), [_hash(line) for line in body[1:]], _checkpoint(note)


def _checkpoint(note: bytes) -> Checkpoint:
    """C2SP signed-note with a tlog-checkpoint text: origin, size, root hash, and no extension lines."""
    if len(note) > MAX_BYTES or re.search(rb"[\x00-\x09\x0b-\x1f]", note):
        raise Refused("bad_checkpoint", "the checkpoint is too long or holds control characters")
    text, separator, tail = _text(note, "checkpoint").rpartition("\n\n")
    lines = text.split("\n")
    if not separator or len(lines) != 3 or not lines[0] or not tail.endswith("\n"):
        raise Refused("bad_checkpoint", "a checkpoint is origin, size and root hash, an empty line and signatures")
    signatures: list[tuple[str, bytes, bytes]] = []
    for line in tail[:-1].split("\n"):
        parts = line.split(" ")
        data = _base64(parts[2], "a note signature") if len(parts) == 3 and parts[0] == "—" and parts[1] else b""
        if len(data) < 5 or "+" in parts[1] or len(signatures) == MAX_SIGNATURES:
            raise Refused("bad_checkpoint", "a signature line of the checkpoint is wrong, or there are too many")
        signatures.append((parts[1], data[:4], data[4:]))
    return Checkpoint(
        lines[0], _decimal(lines[1], "tree size"), _hash(lines[2]), f"{text}\n".encode(), tuple(signatures)
    )


def _signed_by_log(checkpoint: Checkpoint, keys: dict[str, Key], check: Check) -> None:
    """Requires a signature by a log key that was valid at the last covered record; every signature by a known log key
    must be valid."""
    accepted = False
    for key in (key for key in keys.values() if key.role == "log"):
        key_id = _note_key_id(checkpoint.origin, key.raw)
        for name, their_id, signature in checkpoint.signatures:
            if name != checkpoint.origin or their_id != key_id:
                continue
            if len(signature) != 64 or not check(key.raw, checkpoint.text, signature):
                raise Refused("bad_checkpoint", "the log's signature under the checkpoint does not fit")
            accepted = accepted or key.covers(max(checkpoint.size - 1, 0))
    if not accepted:
        raise Refused("bad_checkpoint", "no log key of the key set, valid at its size, signed the checkpoint")


def _note_key_id(name: str, raw: bytes) -> bytes:
    """C2SP signed-note, type 0x01 (Ed25519)."""
    return hashlib.sha256(name.encode() + b"\n\x01" + raw).digest()[:4]


def _extends(older: bytes, new: Checkpoint, consistency: bytes | None, keys: dict[str, Key], check: Check) -> int:
    """Checks that the proof's checkpoint extends the older one: same log, with nothing cut off or rewritten."""
    old = _checkpoint(older)
    _signed_by_log(old, keys, check)
    if old.origin != new.origin or old.size > new.size:
        raise Refused("truncated", f"the older checkpoint is of {old.origin!r} at {old.size}, the newer of {new.size}")
    if old.size < new.size and old.size > 0:
        if consistency is None:
            ask = f"ask for it: kblockctl ledger proof --old-size {old.size} --new-size {new.size}"
            raise Refused("no_consistency", f"sizes {old.size} and {new.size} need --consistency between them; {ask}")
        path = [_hash(line) for line in _text(consistency, "consistency proof").split()]
        holds = _consistent(old.size, new.size, old.root, new.root, path)
    else:
        holds = old.root == new.root or old.size == 0
    if not holds:
        raise Refused("rewritten", f"the ledger does not extend the older checkpoint at {old.size}")
    return old.size


def _root_from_inclusion(index: int, size: int, leaf: bytes, path: list[bytes]) -> bytes | None:
    """RFC 9162, 2.1.3.2; None for a path of the wrong length."""
    if index >= size:
        return None
    place, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            node = _node(sibling, node)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            node = _node(node, sibling)
        place, last = place >> 1, last >> 1
    return node if last == 0 else None


def _consistent(old: int, new: int, old_root: bytes, new_root: bytes, path: list[bytes]) -> bool:
    """RFC 9162, 2.1.4.2, for 0 < old < new."""
    hashes = path if old & (old - 1) else [old_root, *path]
    if not hashes:
        return False
    place, last = old - 1, new - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    first = second = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            first, second = _node(sibling, first), _node(sibling, second)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            second = _node(second, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


# Texts


def _json(data: bytes, what: str) -> dict[str, Any]:
    """An object; duplicate keys, numbers beyond JSON and other encodings are refused."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(members)) != len(members):
            raise ValueError("duplicate key")
        return dict(members)

    def constant(literal: str) -> None:
        raise ValueError(literal)

    try:
        if len(data) > MAX_BYTES:
            raise ValueError("too long")
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Refused("bad_json", f"the {what} is not strict JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused("bad_json", f"the {what} is not a JSON object")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise Refused("bad_json", f"the {what} must be a non-empty list")
    return value


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("bad_text", f"the {what} is not UTF-8") from None


def _base64(text: object, what: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except ValueError:
        data = None
    if data is None or base64.b64encode(data).decode() != text:
        raise Refused("bad_base64", f"{what} is not canonical base64")
    return data


def _hash(line: str) -> bytes:
    data = _base64(line, "a hash")
    if len(data) != 32:
        raise Refused("bad_base64", "a hash has 32 bytes")
    return data


def _decimal(text: object, what: str) -> int:
    if not isinstance(text, str) or not re.fullmatch("0|[1-9][0-9]{0,18}", text):
        raise Refused("bad_number", f"{what} is not a decimal number")
    return int(text)


# The command


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="the pinned public root key, PEM")
    parser.add_argument("--keyset", required=True, help="the key set, DSSE")
    parser.add_argument("--result", required=True, help="the RESULT, DSSE; - reads standard input")
    parser.add_argument("--receipt", required=True, help="the RECEIPT, DSSE; - reads standard input")
    parser.add_argument("--proof", help="the tlog-proof of the receipt")
    parser.add_argument("--action", help="the expected action digest, hex")
    parser.add_argument("--state", choices=("succeeded", "failed"), help="the expected state")
    parser.add_argument("--older-checkpoint", help="an earlier checkpoint")
    parser.add_argument("--consistency", help="the consistency proof between the two, one base64 hash per line")
    parser.add_argument("--backend", choices=("auto", "cryptography", "openssl"), default="auto")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    chosen: dict[str, Any] = vars(parser.parse_args(arguments))
    as_json = chosen.pop("json")
    try:
        for name in ("root", "keyset", "result", "receipt", "proof", "older_checkpoint", "consistency"):
            chosen[name] = _file(chosen[name])
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    verdict = verify(**chosen)
    print(json.dumps(verdict.document(), sort_keys=True) if as_json else f"{verdict.verdict}: {verdict.reason}")
    return verdict.exit_code


def _file(name: str | None) -> bytes | None:
    if name is None:
        return None
    if name == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with open(name, "rb") as stream:
        return stream.read(MAX_BYTES + 1)


if __name__ == "__main__":
    sys.exit(main())
