"""``kblockctl``: the client's command."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from kblockd.cli import approvals, executions, ledger
from kblockd.cli.connection import DaemonAddress

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.option("--socket", envvar="KBLOCKD_SOCKET", type=click.Path(), help="The daemon's Unix socket [KBLOCKD_SOCKET].")
@click.option("--address", help="HOST:PORT of a development daemon, instead.")
@click.version_option(package_name="kblockd", prog_name="kblockctl")
@click.pass_context
def kblockctl(context: click.Context, socket: str | None, address: str | None) -> None:
    """Asks kblockd for actions, decides approvals, reads the ledger.

    Exit codes: 0 done, 1 error, 2 wrong usage, 3 not finished (pending, held, in progress), 4 finished without the
    effect (denied, failed), 5 no answer: the outcome is unknown until the call is repeated with its key.
    """
    context.obj = DaemonAddress(os.path.abspath(socket) if socket else None, address)


@kblockctl.command(short_help="Prints the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the completion script: eval "$(kblockctl completion bash)"."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"unknown shell {shell}")
    click.echo(kind(kblockctl, {}, "kblockctl", "_KBLOCKCTL_COMPLETE").source())


for _command in (
    executions.execute,
    executions.get,
    executions.list_,
    executions.watch,
    executions.timeline_,
    executions.resolve,
    approvals.approvals,
    approvals.approve,
    approvals.deny,
    approvals.revoke,
    ledger.receipt,
    ledger.ledger,
):
    kblockctl.add_command(_command)


def main() -> None:
    """The entry point of the script."""
    kblockctl(prog_name="kblockctl")
