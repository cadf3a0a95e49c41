"""``kblockd ledger verify``: the records are the truth, and everything else must follow from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.options import config_option
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.config import Configuration, load
from kblockd.domain.fold import fold
from kblockd.evidence.jwks import Role
from kblockd.evidence.keyring import read_keyset
from kblockd.ledger import checkpoint
from kblockd.ledger.verify import Report, verify
from kblockd.store.database import look
from kblockd.store.head import read_head


@click.group()
def ledger() -> None:
    """The ledger on disk."""


@ledger.command("verify")
@click.option(
    "--checkpoint",
    "kept",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A checkpoint that was kept elsewhere; the ledger must extend it. May be repeated.",
)
@config_option
@json_option
@guarded
def verify_(kept: Sequence[Path], config: Path) -> None:
    """Goes through the whole ledger: every leaf, the tree, every row, the head file, and checkpoints kept elsewhere.

    Looks at the store as it is now, also beside a running daemon. Exits with 1 when anything differs.
    """
    configuration = load(config, check_pins=False)
    # The head first: beside a running daemon the store may be ahead of it, never behind.
    head = read_head(configuration.data_dir / "head")
    heads = {head.size: head.root, **_kept(configuration, kept)}
    with look(configuration.data_dir / "store") as view:
        report = verify(view, fold, heads=heads, progress=None if is_json() else _progress)
    _print(report)
    sys.exit(0 if report.ok else ERROR)


def _kept(configuration: Configuration, files: Sequence[Path]) -> dict[int, bytes]:
    if not files:
        return {}
    keyset, _, _ = read_keyset(configuration.data_dir / "keys", uid=os.geteuid())
    keys = [key.raw for key in keyset.keys if key.role is Role.LOG]
    found = (checkpoint.verify(file.read_text(), configuration.origin, keys) for file in files)
    return {head.size: head.root for head in found}


def _progress(done: int, size: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done} of {size} records", nl=done == size, err=True)


def _print(report: Report) -> None:
    if is_json():
        differences = [{"where": one.where, "fault": one.fault} for one in report.differences]
        emit(
            {
                "ok": report.ok,
                "size": report.size,
                "root": report.root.hex(),
                "nodes": report.nodes,
                "rows": report.rows,
                "faults": report.faults,
                "differences": differences,
            }
        )
        return
    click.echo(f"{report.size} records, {report.nodes} tree nodes, {report.rows} rows; root {report.root.hex()}")
    for difference in report.differences:
        click.echo(plain(str(difference)))
    more = report.faults - len(report.differences)
    if more > 0:
        click.echo(f"and {more} more")
    click.echo("verified" if report.ok else f"NOT VERIFIED: {report.faults} differences")
