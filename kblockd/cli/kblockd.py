"""``kblockd``: the operator's command. Only ``policy reload|candidate`` need a running daemon, and none disturbs
one."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from kblockd.cli.exits import guarded
from kblockd.cli.options import config_option
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.config import load
from kblockd.upstream.catalog import load_plugins

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_LAZY_GROUPS: Final = {"keys": "keys", "upstream": "pins", "policy": "policy", "ledger": "offline"}


class _Commands(click.Group):
    """Imports groups on demand: their imports take an eighth of the start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LAZY_GROUPS])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LAZY_GROUPS:
            return super().get_command(ctx, cmd_name)
        group: click.Group = getattr(import_module(f"kblockd.cli.{_LAZY_GROUPS[cmd_name]}"), cmd_name)
        return group


@click.group(cls=_Commands, context_settings=_CONTEXT)
@click.version_option(package_name="kblockd", prog_name="kblockd")
def kblockd() -> None:
    """The last control boundary in front of an effect.

    Exit codes: 0 done, 1 error (refused, faults found), 2 wrong usage, 3 undecided (ledger verify beside a daemon),
    75 the daemon failed and may be started again.
    """


@kblockd.command()
@config_option
@guarded
def serve(config: Path) -> None:
    """Runs the daemon until SIGTERM."""
    # Imported here, so that the other commands start fast and load no daemon parts.
    from kblockd.daemon import run

    sys.exit(run(config))


@kblockd.command(short_help="Checks the whole configuration; starts nothing.")
@config_option
@json_option
@guarded
def check(config: Path) -> None:
    """Checks configuration, contracts, upstreams, adapters and policy; starts nothing."""
    from kblockd.cli import policy_source  # imported here for the same reason

    configuration = load(config)
    plugins = load_plugins(configuration.adapters)
    # The second pass checks the upstreams' settings, whose models come from the plugins that the first pass named.
    configuration = load(config, settings_model=lambda name: plugins[name].settings_model if name in plugins else None)
    bundle = policy_source.checked(configuration.policy)
    document: dict[str, Any] = {
        "instance": configuration.instance,
        "origin": configuration.origin,
        "contracts": sorted(f"{operation} in {environment}" for operation, environment in configuration.contracts),
        "upstreams": sorted(configuration.upstreams),
        "adapters": sorted(plugins),
        "principals": sorted(configuration.principals),
        "policy": {"revision": bundle.revision, "tests": bundle.tests},
        "warnings": list(configuration.warnings),
    }
    if is_json():
        emit(document)
        return
    for name in ("contracts", "upstreams", "adapters", "principals"):
        click.echo(plain(f"{name}: {', '.join(document[name]) or 'none'}"))
    click.echo(f"policy: revision {bundle.revision}, {bundle.tests} tests passed")
    for warning in configuration.warnings:
        click.echo(plain(f"WARNING: {warning}"), err=True)


def main() -> None:
    """The entry point of the script."""
    kblockd(prog_name="kblockd")
