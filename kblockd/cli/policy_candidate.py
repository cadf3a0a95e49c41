"""``kblockd policy candidate``: a revision that is asked beside the one in force, by a call to the running daemon."""

from __future__ import annotations

from pathlib import Path

import click

from kblockd.cli.connection import DaemonAddress
from kblockd.cli.exits import guarded
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.client import Client, PolicyCandidate
from kblockd.policy.bundles.files import from_folder, regular
from kblockd.policy.opa.tarball import packed


@click.command(short_help="Compares a bundle with the revision in force, on every question from now on.")
@click.argument("path", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--status", is_flag=True, help="Show the differences so far.")
@click.option("--clear", is_flag=True, help="End the comparison.")
@click.option("--socket", envvar="KBLOCKD_SOCKET", type=click.Path(), help="The daemon's Unix socket [KBLOCKD_SOCKET].")
@click.option("--address", help="HOST:PORT of a development daemon, instead.")
@json_option
@guarded
def candidate(path: Path | None, status: bool, clear: bool, socket: str | None, address: str | None) -> None:
    """Has the running daemon ask the bundle at PATH (a folder or a .tar.gz) every question beside the policy in force.

    The candidate changes nothing: no decision waits for it or fails by it. Where something else would follow from its
    answer, or the same for other reasons, the difference is counted and the newest 200 are listed by --status. It lasts
    until --clear, another candidate, or a restart of the daemon. The caller needs the role policy-editor or operator.
    """
    if (path is not None) + status + clear != 1:
        raise click.UsageError("give either PATH, --status or --clear")
    with DaemonAddress(socket, address).client() as client:
        report = _report(client, path, clear=clear)
    if is_json():
        emit({"candidate": report})
    elif report is None:
        click.echo("there is no candidate")
    else:
        _say(report, "cleared" if clear else "set" if path else "compared")


def _report(client: Client, path: Path | None, *, clear: bool) -> PolicyCandidate | None:
    if path is not None:
        return client.set_policy_candidate(_archive(path))
    return client.clear_policy_candidate() if clear else client.policy_candidate()


def _archive(path: Path) -> bytes:
    """An archive as it is, or the files of a folder as they are; raises ``BundleRefused``."""
    return packed(from_folder(path)) if path.is_dir() else regular(path, str(path))


def _say(report: PolicyCandidate, doing: str) -> None:
    click.echo(f"{doing}: {report.revision} since {report.since:%Y-%m-%dT%H:%M:%SZ}, {report.tests} tests passed")
    for each in report.differences:
        about = each.execution_id or each.entrypoint
        place = f" {each.entrypoint}" if each.execution_id else ""
        click.echo(plain(f"{about}{place}: {each.in_force} -> {each.candidate}"))
    click.echo(
        f"{report.changed} decisions would change ({report.failed} without a decision of the candidate), "
        f"{report.same} would not, {report.other_reasons} only for other reasons, {report.skipped} were not compared"
    )
