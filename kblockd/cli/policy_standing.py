"""``kblockd policy reload|status``: the daemon's policy, read from its file without calling it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from kblockd import decision_point
from kblockd.cli.exits import ERROR, OK, UNFINISHED, guarded
from kblockd.cli.options import Seconds, config_option
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.config import Configuration, load
from kblockd.domain.ledger import rows
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.standing import Attempt, Standing, read
from kblockd.store.database import open_view
from kblockd.store.lock import holder, holder_token

_POLL_SECONDS: Final = 0.05
_BY: Final = {"start": "the start of the daemon", "reload": "a reload that was asked for", "poll": "a changed bundle"}
_GOOD: Final = ("activated", "unchanged")


@click.command(short_help="Has the running daemon read the policy bundle again, now.")
@config_option
@json_option
@click.option("--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait.")
@guarded
def reload(config: Path, timeout: float) -> None:
    """Sends SIGHUP to the daemon of this configuration and waits for the result.

    Says which revision is in force afterwards; a refused bundle changes nothing, and the reason is named. Exits with 0
    if the configured bundle is in force, 1 if it is not, 3 if the daemon has not answered in time.
    """
    data_dir = load(config, check_pins=False).data_dir
    before = _listening(data_dir)
    os.kill(before.pid, signal.SIGHUP)
    standing = _awaited(data_dir, before, time.monotonic() + timeout)
    if standing is None or standing.attempt is None:
        sentence = f"no answer within {timeout:g} s; see `kblockd policy status` and the daemon's log"
        if is_json():
            emit({"outcome": "unfinished"})
        else:
            click.echo(sentence, err=True)
        sys.exit(UNFINISHED)
    if is_json():
        emit({"outcome": standing.attempt.outcome, **_document(standing)})
    else:
        _say_attempt(standing.attempt)
        _say_in_force(standing)
    sys.exit(OK if standing.attempt.outcome in _GOOD else ERROR)


@click.command(short_help="Compares the configured bundle with the revision in force.")
@config_option
@json_option
@guarded
def status(config: Path) -> None:
    """Compares the configured bundle with the revision in force, and says when and by whom that was activated and what
    was refused last. Needs no running daemon. Exit 1: they differ, or the bundle would be refused."""
    configuration = load(config, check_pins=False)
    pid = holder(configuration.data_dir)
    standing = _of_this_daemon(read(configuration.data_dir), pid, configuration.data_dir)
    active = _active(configuration, standing if pid else None)
    revision, fault = _bundle(configuration)
    same = bool(active) and active["revision"] == revision
    if is_json():
        emit(
            {
                "active": active,
                "folder": {"revision": revision, "fault": fault},
                "in_force": same,
                "daemon": {"running": pid is not None, "pid": pid or 0},
                **(_document(standing) if standing else {}),
            }
        )
    else:
        _say(active, standing, pid, revision, fault)
    sys.exit(OK if same else ERROR)


def _listening(data_dir: Path) -> Standing:
    """The standing of the running daemon; raises ``ValueError`` with the next step if none is ready."""
    pid, standing = holder(data_dir), read(data_dir)
    if pid is None:
        raise ValueError(f"no daemon runs over {data_dir}; start it: it reads the bundle then (`kblockd serve`)")
    if standing is None or standing.life != holder_token(data_dir) or not standing.listens:
        raise ValueError(f"the daemon {pid} is still starting; repeat in a moment, or see its log")
    return standing


def _awaited(data_dir: Path, before: Standing, until: float) -> Standing | None:
    """The standing once an attempt that began after ``before`` has ended; None if the daemon or the time ends first."""
    while time.monotonic() < until:
        standing = read(data_dir)
        if standing and standing.life == before.life and standing.ended > before.begun:
            return standing
        if holder(data_dir) is None or holder_token(data_dir) != before.life:
            return None
        time.sleep(_POLL_SECONDS)
    return None


def _of_this_daemon(standing: Standing | None, pid: int | None, data_dir: Path) -> Standing | None:
    """Drops the revision of an earlier daemon: the running one has not activated it yet."""
    if standing is None or pid is None or standing.life == holder_token(data_dir):
        return standing
    return Standing(pid, standing.engine, refused=standing.refused)


def _active(configuration: Configuration, standing: Standing | None) -> dict[str, Any]:
    """By a running daemon's standing file, whose store must not be opened while it writes; else by the ledger."""
    if standing:
        active = {"revision": standing.revision, "at": standing.since, "signer": standing.signer}
        return {**active, "engine": standing.engine} if standing.revision else {}
    store = configuration.data_dir / "store"
    if not store.exists():
        return {}
    with open_view(store) as view:
        row = view.get(rows.policy())
    return msgspec.to_builtins(row[1]) if row else {}


def _bundle(configuration: Configuration) -> tuple[str, str]:
    """Revision and fault of the configured bundle."""
    settings = configuration.policy
    try:
        bundle = decision_point.read(settings)
        return asyncio.run(decision_point.check(settings, bundle)).revision, ""
    except PolicyRefused as refused:
        return "", str(refused)


def _document(standing: Standing) -> dict[str, Any]:
    return {
        "engine": standing.engine,
        "revision": standing.revision,
        "since": standing.since,
        "by": standing.by,
        "signer": standing.signer,
        "last_attempt": standing.attempt,
        "last_refused": standing.refused,
    }


def _say(active: dict[str, Any], standing: Standing | None, pid: int | None, revision: str, fault: str) -> None:
    click.echo(f"daemon:   runs as process {pid}" if pid else "daemon:   does not run")
    if standing and pid:
        _say_in_force(standing)
    elif active:
        signer = f", signed by {active['signer']}" if active["signer"] else ""
        click.echo(plain(f"in force: {active['revision']} since {active['at']}{signer} ({active['engine']})"))
    else:
        click.echo("in force: none was ever activated here")
    if fault:
        click.echo("\n".join(map(plain, f"bundle:   would be refused:\n{fault}".splitlines())))
    else:
        same = bool(active) and active["revision"] == revision
        next_step = "the same" if same else "not in force: `kblockd policy reload`, or start the daemon"
        click.echo(f"bundle:   {revision} ({next_step})")
    if standing and standing.refused:
        click.echo(f"last refused at {standing.refused.at}, by {_BY[standing.refused.by]}:")
        _say_faults(standing.refused)


def _say_in_force(standing: Standing) -> None:
    if not standing.revision:
        click.echo("in force: nothing: every call is denied")
        return
    signer = f", signed by {standing.signer}" if standing.signer else ""
    by = _BY.get(standing.by, standing.by)
    line = f"in force: {standing.revision} since {standing.since}, by {by}{signer} ({standing.engine})"
    click.echo(plain(line))


def _say_attempt(attempt: Attempt) -> None:
    if attempt.outcome in _GOOD:
        click.echo({"activated": "activated", "unchanged": "nothing changed"}[attempt.outcome])
        return
    click.echo(f"{attempt.outcome}:", err=True)
    _say_faults(attempt, err=True)


def _say_faults(attempt: Attempt, *, err: bool = False) -> None:
    unexpected = f"{attempt.message or 'nothing was tried'}; see the daemon's log"
    for line in [*map(str, attempt.faults)] or [unexpected]:
        click.echo(plain(f"  {line}"), err=err)
