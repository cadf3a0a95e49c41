"""``kblockd ledger upgrade``: converts a data directory of an older version to this one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kblockd.cli.exits import guarded
from kblockd.cli.options import config_option
from kblockd.cli.output import emit, is_json, json_option, show_progress
from kblockd.config import load
from kblockd.credentials import keys_passphrase
from kblockd.domain.ledger import fold, rows
from kblockd.evidence.ceremony import add_effect_secret
from kblockd.evidence.effect_secret import EFFECT_FILE, ROLE
from kblockd.evidence.errors import KeysRefused
from kblockd.ledger.merkle import MerkleTree
from kblockd.ledger.upgrade import ADDED_TABLES, refolding
from kblockd.store.database import open_view
from kblockd.store.head import read_head
from kblockd.store.upgrade import upgrade


@click.command("upgrade", short_help="Brings the data directory of an older version to this one.")
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for intermediate files; the system's temporary folder by default.",
)
@config_option
@json_option
@guarded
def upgrade_(scratch: Path | None, config: Path) -> None:
    """Verifies the whole ledger, then adds the rows and the secret that the older version lacks.

    Stop the daemon and copy data_dir aside first: the older version does not open it afterwards. Run it as the
    daemon's user, with the daemon's key credential where its keys are encrypted. May be repeated.
    """
    data_dir = load(config, check_pins=False).data_dir
    head = read_head(data_dir / "head")
    refold = refolding(fold, {head.size: head.root}, progress=None if is_json() else show_progress)
    added = upgrade(data_dir, tree=MerkleTree(), refold=refold, tables=ADDED_TABLES, scratch_dir=scratch)
    secret = _effect_secret(data_dir)
    if is_json():
        emit({"data_dir": str(data_dir), "rows": added, "effect_secret_made": secret})
        return
    click.echo(f"{data_dir} is of this version: {added} rows added")
    if secret:
        click.echo(f"keys/{EFFECT_FILE} made: from now on a backup must hold it")


def _effect_secret(data_dir: Path) -> bool:
    """Creates the secret if the ledger never had one; raises ``KeysRefused`` if it is lost."""
    if not (data_dir / "keys" / EFFECT_FILE).exists():
        with open_view(data_dir / "store") as view:
            known = view.get(rows.active_key(ROLE))
        if known is not None:
            raise KeysRefused(
                f"{data_dir}/keys/{EFFECT_FILE}: missing, and the ledger knows it ({known[1].kid}): another one "
                "would turn repeated calls into new actions. Restore it from the backup of keys/"
            )
    return add_effect_secret(data_dir / "keys", passphrase=keys_passphrase(os.environ))
