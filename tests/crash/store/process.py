"""Runs ``child`` and checks what it left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.verify import verify
from kblockd.store.database import open_view
from kblockd.store.head import read_head
from kblockd.store.rocks import RocksStore
from tests.contract.store.folding import decode, fold

CHILD = Path(__file__).with_name("child.py")
PROJECT = CHILD.parents[3]

Line = dict[str, Any]


def spawn(folder: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """The child, with its promises on stdout."""
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})},
    )


def run_until_killed(
    folder: Path, environment: Mapping[str, str] | None = None, enough: Callable[[list[Line]], bool] | None = None
) -> list[Line]:
    """What the child promised until it killed itself, or until ``enough`` and then SIGKILL from here."""
    with spawn(folder, environment) as process:
        lines: list[Line] = []
        assert process.stdout is not None
        assert process.stderr is not None
        for raw in process.stdout:
            lines.append(json.loads(raw))
            if enough is not None and enough(lines):
                process.kill()
                enough = None
        errors = process.stderr.read()
        process.wait(60)
    assert process.returncode == -9, errors.decode()
    return lines


async def check_kept(folder: Path, lines: Iterable[Line]) -> RocksStore:
    """Nothing that was promised is lost, the fold equals the rows, the tree holds every head that was handed out.

    Returns the open store.
    """
    promised = list(lines)
    store = await RocksStore.open(folder, fold=fold, decode=decode, tree=MerkleTree(), ballast_bytes=0)
    for line in promised:
        if "ack" in line:
            found = await store.get(("execution", line["ack"]))
            assert found is not None, f"{line} was acknowledged and is lost"
            assert line["index"] in found[1]["records"]
            assert await store.payload(("payload", line["ack"], "d")) == b"p" * 500
    heads = {line["size"]: bytes.fromhex(line["root"]) for line in promised if "size" in line}
    head = read_head(folder / "head")
    assert head.size >= max(heads, default=0)
    copy = folder / f"copy-{store.incarnation}"
    await store.backup(str(copy))
    with open_view(copy / "store") as view:
        report = verify(view, fold, decode=decode, heads={**heads, head.size: head.root})
    assert report.ok, report.differences
    assert report.size == head.size
    return store
