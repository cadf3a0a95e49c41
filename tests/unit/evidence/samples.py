"""One of each statement with every member present, a naive Merkle log, and a world of keys."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from kblockd.domain.signing import Signer
from kblockd.domain.states import ResultClass
from kblockd.evidence import statements as s
from kblockd.evidence.ceremony import init_keys
from kblockd.evidence.keyring import KeyRing
from kblockd.evidence.receipts import Signed, sign_receipt, sign_result

ORIGIN = "kblockd.example/test/1"
NOW = dt.datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
ACTION = hashlib.sha256(b"action").hexdigest()
HEX = hashlib.sha256(b"something").hexdigest()


def approval() -> s.Approval:
    """An approval in full."""
    return s.Approval(
        action=ACTION,
        approval_id="apr_1",
        approver="local:lead",
        owner="person:lead",
        decision="approved",
        presented_sha256=HEX,
        max_uses=1,
        not_before=NOW,
        not_after=NOW + dt.timedelta(minutes=10),
        policy_digest=HEX,
        signed_by=s.SignedBy.DAEMON,
    )


def result() -> s.Result:
    """A RESULT in full."""
    return s.Result(
        action=ACTION,
        output_sha256=hashlib.sha256(b"output").hexdigest(),
        execution_id="exe_1",
        tenant="acme",
        caller=s.CallerIdentity("local:agent", "spiffe://acme/agent", HEX, "key_1"),
        tool="refund",
        tool_version="5",
        target=s.TargetRef("order", "o-1", "7"),
        state=s.SealedState.SUCCEEDED,
        result_class=ResultClass.COMPLETED_VERIFIED,
        code="OK",
        attempts=1,
        effect_key=HEX,
        upstream=s.UpstreamPlace("https://payments.example:443", "op_1"),
        contract_sha256=HEX,
        started_at=NOW,
        finished_at=NOW + dt.timedelta(seconds=2),
        idempotency=s.Idempotency(HEX, False),
        approval=s.ApprovalUse("apr_1", hashlib.sha256(s.payload(approval())).hexdigest(), 3),
        policy=s.PolicyUse("kblock.decision", HEX),
        verification=s.VerificationResult("expected", "read", HEX),
        output=s.Output(120, "application/json", "reveal"),
        credential=s.CredentialUse("payments", "2"),
        daemon=s.DaemonIdentity("0.1.0", "kblockd-1"),
    )


def receipt(of: Signed, state: s.SealedState = s.SealedState.SUCCEEDED) -> s.Receipt:
    """A RECEIPT in full, about a signed RESULT."""
    events = [("execution.proposed", 1), ("execution.claimed", 3), ("execution.sent", 4)]
    return s.Receipt(
        result=of.sha256,
        action=ACTION,
        approval=hashlib.sha256(s.payload(approval())).hexdigest(),
        execution_id="exe_1",
        state=state,
        ledger=s.LogIdentity(ORIGIN),
        events=(
            *(s.LedgerEvent(kind, hashlib.sha256(kind.encode()).hexdigest(), index) for kind, index in events),
            s.LedgerEvent("result.sealed", HEX),
        ),
        issued_at=NOW + dt.timedelta(seconds=3),
    )


def disposition() -> s.Disposition:
    """A DISPOSITION in full."""
    return s.Disposition(
        result=HEX,
        execution_id="exe_1",
        finding=s.LaterFinding.RECONCILED,
        result_class=ResultClass.COMPLETED_VERIFIED,
        source="effect_key",
        evidence_sha256=HEX,
        operator="local:operator",
        previous=HEX,
        issued_at=NOW,
    )


class NaiveLog:
    """RFC 6962 as its text defines it, recursively and slowly: the judge of the verifier's iterative proofs."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.leaves = leaves

    def root(self, size: int | None = None) -> bytes:
        """MTH of the first ``size`` leaves."""
        return self._root(self.leaves[:size])

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """PATH(m, D[n])."""
        return self._path(index, self.leaves[:size])

    def consistency(self, old: int, new: int) -> list[bytes]:
        """PROOF(m, D[n])."""
        return self._proof(old, self.leaves[:new], True)

    def checkpoint(self, size: int, *signers: Signer, origin: str = ORIGIN) -> bytes:
        """A signed note over the first ``size`` leaves."""
        text = f"{origin}\n{size}\n{base64.b64encode(self.root(size)).decode()}\n".encode()
        lines = b"".join(note_line(origin, signer, text) for signer in signers)
        return text + b"\n" + lines

    def proof(self, index: int, size: int, *signers: Signer, origin: str = ORIGIN) -> bytes:
        """A tlog-proof@v1."""
        path = "".join(base64.b64encode(h).decode() + "\n" for h in self.inclusion(index, size))
        head = f"c2sp.org/tlog-proof@v1\nindex {index}\n{path}\n"
        return head.encode() + self.checkpoint(size, *signers, origin=origin)

    def _root(self, d: list[bytes]) -> bytes:
        if not d:
            return hashlib.sha256(b"").digest()
        if len(d) == 1:
            return hashlib.sha256(b"\0" + d[0]).digest()
        k = _split(len(d))
        return hashlib.sha256(b"\1" + self._root(d[:k]) + self._root(d[k:])).digest()

    def _path(self, m: int, d: list[bytes]) -> list[bytes]:
        if len(d) == 1:
            return []
        k = _split(len(d))
        if m < k:
            return [*self._path(m, d[:k]), self._root(d[k:])]
        return [*self._path(m - k, d[k:]), self._root(d[:k])]

    def _proof(self, m: int, d: list[bytes], whole: bool) -> list[bytes]:
        if m == len(d):
            return [] if whole else [self._root(d)]
        k = _split(len(d))
        if m <= k:
            return [*self._proof(m, d[:k], whole), self._root(d[k:])]
        return [*self._proof(m - k, d[k:], False), self._root(d[:k])]


def _split(n: int) -> int:
    return 1 << ((n - 1).bit_length() - 1)


def note_line(name: str, signer: Signer, text: bytes) -> bytes:
    """A signature line of a note."""
    key_id = hashlib.sha256(name.encode() + b"\n\x01" + signer.public_key).digest()[:4]
    return f"— {name} {base64.b64encode(key_id + signer.sign(text)).decode()}\n".encode()


@dataclass(frozen=True)
class World:
    """Keys, a sealed execution and the log that holds its receipt at index 6 of 11."""

    folder: Path
    root_file: Path
    ring: KeyRing
    result: Signed
    receipt: Signed
    log: NaiveLog
    index: int = 6
    size: int = 11

    @property
    def root_pem(self) -> bytes:
        """What a verifier pins."""
        return (self.folder / "root.pub.pem").read_bytes()

    def parts(self, **changed: bytes | str | None) -> dict[str, bytes | str | None]:
        """Arguments of ``verify_offline.verify``."""
        whole: dict[str, bytes | str | None] = {
            "result": self.result.envelope,
            "receipt": self.receipt.envelope,
            "root": self.root_pem,
            "keyset": self.ring.keyset_envelope,
            "proof": self.log.proof(self.index, self.size, self.ring.log),
        }
        return {**whole, **changed}

    def reloaded(self) -> World:
        """The same, with the keys as they are on disk now."""
        return replace(self, ring=KeyRing.load(self.folder))


def make_world(place: Path) -> World:
    """A fresh one in an empty folder."""
    folder, root_file = place / "keys", place / "root.pem"
    init_keys(folder, root_file)
    ring = KeyRing.load(folder)
    sealed = sign_result(result(), ring)
    issued = sign_receipt(receipt(sealed), ring)
    leaves = [f"record {n}".encode() for n in range(6)] + [issued.payload] + [f"later {n}".encode() for n in range(9)]
    return World(folder, root_file, ring, sealed, issued, NaiveLog(leaves))
