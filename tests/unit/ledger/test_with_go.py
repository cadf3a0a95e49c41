"""What we write, read by Go's ``sumdb/note`` and ``sumdb/tlog``: the copy that the Go distribution carries, so no
network. Evidence, *Checked by tools that are not ours*, 2 and 3."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kblockd.ledger import checkpoint, note
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.merkle import consistency_ranges, inclusion_ranges
from kblockd.ledger.tlog_proof import TlogProof
from tests.unit.ledger import naive
from tests.unit.ledger.keys import TestSigner
from tests.unit.ledger.test_merkle import grown, hashes

GO = shutil.which("go")
ORIGIN = "kblockd.example/prod/1"
LEAVES = [b'{"record":%d}' % n for n in range(13)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if GO is None:
        pytest.skip("Go is not installed")
    asked = subprocess.run([GO, "env", "GOROOT", "GOVERSION"], check=True, capture_output=True, text=True)
    root, version = asked.stdout.split()
    language = f"go {version.removeprefix('go')}\n"
    source = Path(root) / "src/cmd/vendor/golang.org/x/mod/sumdb"
    if not source.is_dir():
        pytest.skip("this Go distribution carries no sumdb packages")
    folder = tmp_path_factory.mktemp("go")
    for package in ("note", "tlog"):
        shutil.copytree(source / package, folder / "mod" / "sumdb" / package)
    (folder / "mod" / "go.mod").write_text(f"module golang.org/x/mod\n\n{language}")
    (folder / "go.mod").write_text(
        f"module read\n\n{language}\nrequire golang.org/x/mod v0.0.0\n\nreplace golang.org/x/mod => ./mod\n"
    )
    shutil.copy(Path(__file__).with_name("read.go"), folder / "main.go")
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    subprocess.run([GO, "build", "-o", "read", "."], cwd=folder, env=environment, check=True)
    return folder / "read"


@pytest.mark.parametrize("index", [0, 5, 12])
def test_go_reads_checkpoint_inclusion_and_consistency(reader: Path, tmp_path: Path, index: int) -> None:
    signer = TestSigner(1)
    signed = checkpoint.sign(TreeHead(ORIGIN, 13, naive.mth(LEAVES)), [TestSigner(2), signer])
    _, rows = grown(LEAVES)
    proof = TlogProof(index, tuple(hashes(rows, inclusion_ranges(index, 13))), signed)
    (tmp_path / "proof").write_text(proof.text())
    (tmp_path / "leaf").write_bytes(LEAVES[index])
    key_id = note.key_id(ORIGIN, signer.public_key).hex()
    vkey = f"{ORIGIN}+{key_id}+" + base64.b64encode(b"\x01" + signer.public_key).decode()
    consistency = [base64.b64encode(value).decode() for value in hashes(rows, consistency_ranges(6, 13))]
    old_root = base64.b64encode(naive.mth(LEAVES[:6])).decode()

    def read() -> subprocess.CompletedProcess[str]:
        command = [reader, vkey, tmp_path / "proof", tmp_path / "leaf", "6", old_root, " ".join(consistency)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = read()
    assert (done.returncode, done.stdout) == (0, f"{ORIGIN} 13 {index}\n"), done.stderr
    (tmp_path / "leaf").write_bytes(LEAVES[index] + b" ")
    assert read().returncode == 1
