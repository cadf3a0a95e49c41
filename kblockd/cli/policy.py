"""``kblockd policy check|status``."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from pathlib import Path
from typing import Any

import click

from kblockd import decision_point
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.options import config_option
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.config import Configuration, PolicySettings, load
from kblockd.domain import rows
from kblockd.domain.clock import rfc3339
from kblockd.policy.bundle import Bundle, read
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.opa.tarball import build
from kblockd.store.database import look


@click.group()
def policy() -> None:
    """The policy that decides."""


@policy.command(short_help="Lints, compiles and tests the policy folder.")
@config_option
@json_option
@click.option(
    "--bundle",
    "tarball",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the bundle (.tar.gz) for an OPA that somebody else runs.",
)
@guarded
def check(config: Path, tarball: Path | None) -> None:
    """Lints, compiles and tests the policy folder as a reload would; activates nothing.

    For a remote OPA it notes that the revision passed, in the file that policy.opa.revisions names.
    """
    settings = load(config, check_pins=False).policy
    bundle = checked(settings)
    if tarball:
        tarball.write_bytes(build(bundle))
    noted = decision_point.note(settings, bundle, rfc3339(dt.datetime.now(dt.UTC)))
    if is_json():
        emit({"revision": bundle.revision, "tests": bundle.tests, "noted": str(noted or "")})
    else:
        click.echo(f"revision {bundle.revision}, {bundle.tests} tests passed")
        if noted:
            click.echo(plain(f"noted in {noted}: the remote OPA may serve it"))


@policy.command(short_help="Compares the folder with the revision in force.")
@config_option
@json_option
@guarded
def status(config: Path) -> None:
    """Compares the policy folder with the revision in force, as the ledger records it. Exit 1: they differ."""
    configuration = load(config, check_pins=False)
    active = _active(configuration)
    try:
        bundle, fault = checked(configuration.policy), ""
    except PolicyRefused as refused:
        bundle, fault = None, str(refused)
    revision = bundle.revision if bundle else ""
    same = bool(active) and active.get("revision") == revision
    if is_json():
        emit({"active": active, "folder": {"revision": revision, "fault": fault}, "in_force": same})
    else:
        _say(active, revision, fault, same)
    sys.exit(0 if same else ERROR)


def checked(settings: PolicySettings) -> Bundle:
    """The folder's bundle after every check; raises ``PolicyRefused``."""
    return asyncio.run(decision_point.check(settings, read(settings.dir)))


def _active(configuration: Configuration) -> dict[str, Any]:
    store = configuration.data_dir / "store"
    if not store.exists():
        return {}
    with look(store) as view:
        found = view.get(rows.policy())
    return dict(found[1]) if found else {}


def _say(active: dict[str, Any], revision: str, fault: str, same: bool) -> None:
    if active:
        click.echo(plain(f"in force: {active.get('revision', '')} since {active.get('at', '')}"))
    else:
        click.echo("in force: none was ever activated here")
    if fault:
        click.echo("\n".join(map(plain, f"the folder is refused:\n{fault}".splitlines())))
    else:
        click.echo(f"folder:   {revision}{' (the same)' if same else ' (not in force: reload or restart the daemon)'}")
