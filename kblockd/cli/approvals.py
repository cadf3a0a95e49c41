"""``kblockctl approvals|approve|deny|revoke``: approving and denying show the action first, revoking does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kblockd.cli import tables
from kblockd.cli.connection import DaemonAddress, connected
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.output import emit, is_json, json_option, plain, show
from kblockd.domain.outcome import ApprovalView

_STATES = ["pending", "approved", "denied", "expired", "revoked", "used", "void"]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _decision_options(command: _Command) -> _Command:
    """The options of ``approve`` and ``deny``."""
    for add in (
        click.option("--shown", "presented_sha256", default="", help="Digest of the text that you have read."),
        click.option("--action", "action_sha256", default="", help="Digest of the action that you have read."),
        click.option("--yes", is_flag=True, help="Do not ask. Requires both digests."),
        click.option("--reason", default="", help="Why; stored with the execution."),
        click.argument("approval_id"),
    ):
        command = add(command)
    return command


@click.command(short_help="Lists approvals, or shows one in full.")
@click.argument("approval_id", required=False)
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True)
@click.option("--page-token", default="", help="Where the page before ended.")
@json_option
@connected
@guarded
def approvals(
    connection: DaemonAddress, approval_id: str | None, states: Sequence[str], limit: int, page_token: str
) -> None:
    """Lists approvals, newest first, or shows one as an approver must read it."""
    with connection.client() as client:
        if approval_id is not None:
            view = client.approval(approval_id)
            emit(view) if is_json() else show(*tables.approval(view))
            return
        page = client.approvals(states, page_size=limit, page_token=page_token)
    if is_json():
        emit(page)
        return
    show(*tables.approvals(page.items))
    if page.next_token:
        click.echo(f"more: --page-token {plain(page.next_token)}", err=True)


@click.command()
@_decision_options
@json_option
@connected
@guarded
def approve(connection: DaemonAddress, /, approval_id: str, **options: str) -> None:
    """Shows the action, asks, and approves exactly that action."""
    _decide(connection, approval_id, "approve", options)


@click.command()
@_decision_options
@json_option
@connected
@guarded
def deny(connection: DaemonAddress, /, approval_id: str, **options: str) -> None:
    """Shows the action, asks, and denies exactly that action. A denial is final."""
    _decide(connection, approval_id, "deny", options)


@click.command()
@click.argument("approval_id")
@click.option("--reason", required=True, help="Why; stored with the execution.")
@json_option
@connected
@guarded
def revoke(connection: DaemonAddress, approval_id: str, reason: str) -> None:
    """Revokes an approval before it is used, without asking: its action can no longer run."""
    with connection.client() as client:
        revoked = client.revoke(approval_id, reason)
    if is_json():
        emit(revoked)
    else:
        click.echo(plain(f"{revoked.approval_id} is revoked; {revoked.execution_id} can no longer run"))


def _decide(connection: DaemonAddress, approval_id: str, verdict: str, options: dict[str, str]) -> None:
    action, shown = options["action_sha256"], options["presented_sha256"]
    given = bool(action and shown)
    if options["yes"] and not given:
        raise click.UsageError("--yes needs --action and --shown: the digests of the text that you have read")
    if is_json() and not options["yes"]:
        raise click.UsageError("--json does not ask: it needs --yes with --action and --shown")
    with connection.client() as client:
        if not options["yes"]:
            view = client.approval(approval_id)
            show(*tables.approval(view))
            _check_given(view, action, shown)
            action, shown = view.action_sha256, view.presented_sha256
            click.confirm(f"{verdict} exactly this?", abort=True)
        decided = client.decide(
            approval_id, action_sha256=action, presented_sha256=shown, verdict=verdict, reason=options["reason"]
        )
    if is_json():
        emit(decided)
    else:
        click.echo(plain(f"{decided.approval.approval_id} is {decided.approval.state}"))


def _check_given(view: ApprovalView, action: str, shown: str) -> None:
    """Exits if a given digest differs: the user has read something else."""
    for name, given, now in (("--action", action, view.action_sha256), ("--shown", shown, view.presented_sha256)):
        if given and given != now:
            click.echo(f"{name} is not the current digest; read it again", err=True)
            sys.exit(ERROR)
