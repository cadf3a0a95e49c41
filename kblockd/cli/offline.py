"""``kblockd ledger verify|export|upgrade``: works on the data directory, without a daemon."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kblockd.cli.exits import ERROR, OK, UNFINISHED, guarded
from kblockd.cli.options import config_option, owner_of
from kblockd.cli.output import emit, is_json, json_option, plain, show_progress
from kblockd.cli.upgrade import upgrade_
from kblockd.cli.verification import LedgerVerdict, verify_directory
from kblockd.config import Configuration, load
from kblockd.evidence.jwks import Role
from kblockd.evidence.keyring import read_keyset
from kblockd.ledger import checkpoint
from kblockd.ledger.export import Condition, Exported, export
from kblockd.ledger.verify import Report
from kblockd.store.head import read_head
from kblockd.store.lock import DirectoryLock
from kblockd.store.protocol import Append, StoreRefused
from kblockd.store.salvage import salvage


@click.group()
def ledger() -> None:
    """The ledger on disk."""


ledger.add_command(upgrade_)


@ledger.command("verify", short_help="Goes through the whole ledger.")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A checkpoint from elsewhere; the ledger must extend it. May be repeated.",
)
@config_option
@json_option
@guarded
def verify_(checkpoints: Sequence[Path], config: Path) -> None:
    """Verifies the whole ledger: every leaf, the tree, every row, the head file, and checkpoints from elsewhere.

    Without a daemon the folder is locked meanwhile. Beside a running one the verification is tried up to three times,
    and differences that its writing may explain are called undecided, with exit code 3. Exits with 1 when anything
    differs.
    """
    configuration = load(config, check_pins=False)
    heads = _verified_heads(configuration, checkpoints)
    verdict = verify_directory(configuration.data_dir, heads, None if is_json() else show_progress)
    _print(verdict)
    sys.exit(OK if verdict.ok else ERROR if verdict.decided else UNFINISHED)


@ledger.command("export", short_help="Writes every record that can still be read.")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write; must not exist. One JSON document per line: index, leaf, aux (base64), condition.",
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for a copy, which is needed when the store does not open; the system's temporary folder by default.",
)
@config_option
@json_option
@guarded
def export_(out: Path, scratch: Path | None, config: Path) -> None:
    """Writes every record that can still be read, even from a damaged store, and reports the others.

    The store itself is not touched. Refused beside a running daemon. Exits with 1 when a record is lost or not proved.
    """
    configuration = load(config, check_pins=False)
    size, fault = _head_size(configuration.data_dir / "head")
    with (
        _alone(configuration.data_dir),
        salvage(configuration.data_dir / "store", scratch) as (view, how),
        out.open("x", encoding="ascii") as file,
    ):

        def write(index: int, record: Append, condition: Condition) -> None:
            document = {
                "index": index,
                "leaf": base64.b64encode(record.leaf).decode(),
                "aux": base64.b64encode(record.aux).decode(),
                "condition": condition,
            }
            file.write(json.dumps(document) + "\n")

        exported = export(view, size, write)
    _print_export(exported, how, fault)
    sys.exit(0 if exported.whole and not fault else ERROR)


@contextlib.contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """Keeps daemons away; raises ``StoreRefused`` beside one. On a read-only medium there can be none."""
    try:
        lock = DirectoryLock(data_dir)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _head_size(file: Path) -> tuple[int, str]:
    """The expected number of records, and why it is unknown."""
    try:
        return read_head(file).size, ""
    except (StoreRefused, OSError) as error:
        return 0, f"the expected number of records is unknown: {error}"


def _print_export(exported: Exported, how: str, fault: str) -> None:
    ranges = {str(each): exported.ranges(each) for each in Condition if each is not Condition.PROVED}
    if is_json():
        emit(
            {
                "whole": exported.whole and not fault,
                "source": how,
                "expected": exported.expected,
                "written": exported.written,
                "proved": len(exported.indexes[Condition.PROVED]),
                "head": fault or "read",
                "ranges": ranges,
            }
        )
        return
    click.echo(f"{exported.written} of {exported.expected} records written, from {how}")
    if fault:
        click.echo(plain(fault))
    for name, runs in ranges.items():
        for first, last in runs[:20]:
            click.echo(f"{name}: record {first}" if first == last else f"{name}: records {first} to {last}")
        if len(runs) > 20:
            click.echo(f"{name}: and {len(runs) - 20} more ranges")


def _verified_heads(configuration: Configuration, files: Sequence[Path]) -> dict[int, bytes]:
    """Size and root of each checkpoint, with its signature verified."""
    if not files:
        return {}
    folder = configuration.data_dir / "keys"
    keyset, _, _ = read_keyset(folder, uid=owner_of(folder))
    keys = [key.raw for key in keyset.keys if key.role is Role.LOG]
    heads = (_verified_head(file, configuration.origin, keys) for file in files)
    return {head.size: head.root for head in heads}


def _verified_head(file: Path, origin: str, keys: Sequence[bytes]) -> checkpoint.TreeHead:
    try:
        return checkpoint.verify(file.read_text(), origin, keys)
    except ValueError as error:
        raise ValueError(
            f"{file}: not a checkpoint of {origin}: {error}; give one that `kblockctl ledger checkpoint` printed, and "
            "check that ledger.origin and the keys are those of its time"
        ) from None


def _print(verdict: LedgerVerdict) -> None:
    report = verdict.report or Report()
    if is_json():
        differences = [{"where": each.where, "fault": each.fault} for each in report.differences]
        emit(
            {
                "ok": verdict.ok,
                "decided": verdict.decided,
                "looks": verdict.looks,
                "fault": verdict.fault,
                "size": report.size,
                "root": report.root.hex(),
                "nodes": report.nodes,
                "rows": report.rows,
                "faults": report.faults,
                "differences": differences,
            }
        )
        return
    if verdict.report is not None:
        click.echo(f"{report.size} records, {report.nodes} tree nodes, {report.rows} rows\nroot {report.root.hex()}")
    for difference in report.differences:
        click.echo(plain(str(difference)))
    unlisted = report.faults - len(report.differences)
    if unlisted > 0:
        click.echo(f"and {unlisted} more")
    click.echo(plain(_sentence(verdict, report)))


def _sentence(verdict: LedgerVerdict, report: Report) -> str:
    if verdict.ok:
        return "verified" if verdict.looks == 1 else f"verified at try {verdict.looks} beside the running daemon"
    if verdict.decided:
        return f"NOT VERIFIED: {report.faults} differences"
    why = f" ({verdict.fault})" if verdict.fault else ""
    return (
        f"UNDECIDED after {verdict.looks} tries beside a running daemon{why}: its own writes may explain this. "
        "Next step: stop the daemon and verify again, or verify a backup."
    )
