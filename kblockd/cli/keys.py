"""``kblockd keys init|show``."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import click
from rich.table import Table

from kblockd.cli.exits import guarded
from kblockd.cli.options import config_option, owner_of
from kblockd.cli.output import cell, emit, is_json, json_option, show
from kblockd.config import load
from kblockd.evidence.ceremony import init_keys
from kblockd.evidence.jwks import KeySet, thumbprint
from kblockd.evidence.keyring import read_keyset


@click.group()
def keys() -> None:
    """Signing keys."""


@keys.command()
@click.option(
    "--root",
    "root_file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where the root's private key goes; take it offline.",
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="Instead of data_dir/keys.")
@click.option("--passphrase-file", type=click.File("rb"), help="Random bytes that encrypt the daemon's keys at rest.")
@click.option("--root-passphrase-file", type=click.File("rb"), help="The same for the root key.")
@config_option
@json_option
@guarded
def init(
    root_file: Path,
    folder: Path | None,
    passphrase_file: IO[bytes] | None,
    root_passphrase_file: IO[bytes] | None,
    config: Path,
) -> None:
    """Creates the daemon's keys and the root key that signs them. Refuses if there are keys already."""
    where = folder or load(config, check_pins=False).data_dir / "keys"
    change = init_keys(
        where,
        root_file,
        passphrase=_passphrase(passphrase_file, "--passphrase-file"),
        root_passphrase=_passphrase(root_passphrase_file, "--root-passphrase-file"),
    )
    if is_json():
        emit({"folder": str(where), "root": str(root_file), "keys": [key.jwk() for key in change.keyset.keys]})
        return
    show(_table(change.keyset))
    click.echo(f"keys are in {where}; take {root_file} offline now, and pin {where}/root.pub.pem where you verify")


@keys.command("show")
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="Instead of data_dir/keys.")
@config_option
@json_option
@guarded
def show_(folder: Path | None, config: Path) -> None:
    """Shows the key set signed by the root, after verifying the signature."""
    where = folder or load(config, check_pins=False).data_dir / "keys"
    keyset, _, root = read_keyset(where, uid=owner_of(where))
    if is_json():
        emit({"version": keyset.version, "root": thumbprint(root), "keys": [key.jwk() for key in keyset.keys]})
        return
    click.echo(f"root {thumbprint(root)}, key set version {keyset.version}")
    show(_table(keyset))


def _table(keyset: KeySet) -> Table:
    table = Table("role", "key id", "from index", "to index", box=None, pad_edge=False)
    for key in keyset.keys:
        end = "active" if key.to_index is None else str(key.to_index)
        table.add_row(cell(str(key.role)), cell(key.kid), str(key.from_index), end)
    return table


def _passphrase(file: IO[bytes] | None, option: str) -> bytes | None:
    if file is None:
        return None
    passphrase = file.read().rstrip(b"\r\n")
    if not passphrase:
        raise click.UsageError(f"{option}: {file.name} is empty; fill it: head -c 32 /dev/urandom | base64")
    return passphrase
