"""``kblockd policy diff``: which recorded decisions would change under another bundle."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click

from kblockd import decision_point
from kblockd.authoring.diff import Change, Compared, Tally, diff
from kblockd.cli.exits import OK, UNFINISHED, guarded
from kblockd.cli.options import config_option
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.config import PolicySettings, load
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyEngine
from kblockd.policy.deciding.verdicts import Verdict
from kblockd.store.database import StoreView, open_view
from kblockd.store.protocol import StoreRefused, StoreUnreadable
from kblockd.system import RandomIds, SystemClock

CHANGED: Final = 6
RECORDED: Final = "recorded"
LOOKS: Final = 3
PAUSE_SECONDS: Final = 0.5
EVALUATE_SECONDS: Final = 5.0
"""Per query: this machine may be slower than the deciding one, and a time-out here is not a finding."""


@dataclass(slots=True)
class _Differences:
    sides: dict[str, str]
    tally: Tally = field(default_factory=Tally)
    changed: list[dict[str, Any]] = field(default_factory=list)


@click.command("diff", short_help="Lists the recorded decisions that a bundle would change.")
@click.argument("old")
@click.argument("new", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another data directory than the configured one: a backup.",
)
@config_option
@json_option
@guarded
def diff_(old: str, new: Path, data_dir: Path | None, config: Path) -> None:
    """Replays the recorded decisions with the bundles OLD and NEW (folders or .tar.gz), and lists each that would
    change. OLD may be the word "recorded": the original decisions.

    Only reads, also beside a running daemon. Exits with 0 if all decisions were replayed and stay the same, 6 if any
    would change, 3 if none changes but some could not be replayed (their inputs were erased, or never stored).
    """
    configuration = load(config, check_pins=False)
    policy = configuration.policy
    bundles = [None if old == RECORDED else decision_point.draft(policy, Path(old)), decision_point.draft(policy, new)]
    with _stable_view((data_dir or configuration.data_dir) / "store") as view:
        differences = asyncio.run(_diff(configuration.policy, bundles, view))
    _print(differences)
    decisions = differences.tally.decisions
    if decisions[Change.CHANGED]:
        sys.exit(CHANGED)
    sys.exit(UNFINISHED if decisions[Change.NOT_REPLAYABLE] else OK)


@contextmanager
def _stable_view(store: Path) -> Iterator[StoreView]:
    """Retries, because a running daemon may remove a file while the view is being opened; an open view is stable."""
    with ExitStack() as stack:
        for remaining in reversed(range(LOOKS)):
            try:
                view = stack.enter_context(open_view(store))
                break
            except StoreRefused:
                if remaining == 0 or not store.is_dir():
                    raise
                time.sleep(PAUSE_SECONDS)
        try:
            yield view
        except StoreUnreadable as error:
            raise StoreRefused(
                f"{store} cannot be read: {error}. Next step: stop the daemon and run `kblockd ledger verify`, or name "
                "a backup with --data-dir."
            ) from None


async def _diff(settings: PolicySettings, bundles: list[Bundle | None], view: StoreView) -> _Differences:
    old, new = bundles
    assert new is not None  # noqa: S101  # only OLD may be "recorded"
    differences = _Differences({"old": old.revision if old else RECORDED, "new": new.revision})
    async with _engine(settings, old) as before, _engine(settings, new) as after:
        assert after is not None  # noqa: S101  # as above
        async for compared in diff(view, before, after, _progress(view.size())):
            differences.tally.add(compared)
            if compared.change is Change.CHANGED:
                _report(differences, compared)
    return differences


@asynccontextmanager
async def _engine(settings: PolicySettings, bundle: Bundle | None) -> AsyncIterator[PolicyEngine | None]:
    """An engine of its own, apart from the daemon's, with the checked bundle active; None for recorded decisions."""
    if bundle is None:
        yield None
        return
    with decision_point.own_settings(replace(settings, evaluate_timeout_seconds=EVALUATE_SECONDS)) as own:
        checked = await decision_point.check(own, bundle)
        engine = decision_point.open_loading(own, SystemClock(), RandomIds())
        try:
            await engine.activate(checked)
            yield engine
        finally:
            await engine.close()


def _progress(size: int) -> Callable[[int], None]:
    def show(index: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{index + 1} of {size} records", nl=False, err=True)

    return show


def _report(differences: _Differences, compared: Compared) -> None:
    """As text at once, as JSON with everything else at the end."""
    recorded, old, new = compared.recorded, compared.old, compared.new
    assert old is not None and new is not None  # noqa: S101, PT018  # a change has both
    if is_json():
        differences.changed.append(
            {
                "index": recorded.index,
                "at": recorded.at,
                "execution_id": recorded.execution,
                "about": recorded.about,
                "entrypoint": recorded.entrypoint,
                "decision_id": recorded.decision_id,
                "revision": recorded.revision,
                "old": _document(old),
                "new": _document(new),
            }
        )
        return
    click.echo(plain(f"{recorded.about} {recorded.entrypoint}: {old.with_reasons()} -> {new.with_reasons()}"))


def _document(verdict: Verdict) -> dict[str, Any]:
    return {**verdict.consequence, "reasons": list(verdict.codes)}


def _print(differences: _Differences) -> None:
    tally = differences.tally
    counts = {str(change): tally.decisions[change] for change in Change}
    missing = {str(why): number for why, number in sorted(tally.missing.items())}
    if is_json():
        executions = sorted(tally.executions)
        emit(
            {
                **differences.sides,
                "decisions": counts,
                "missing": missing,
                "changed": differences.changed,
                "executions": executions,
            }
        )
        return
    if sys.stderr.isatty():
        click.echo("", err=True)
    click.echo(plain(f"old {differences.sides['old']}, new {differences.sides['new']}"))
    click.echo(
        f"{counts[Change.CHANGED]} decisions of {len(tally.executions)} executions would change, "
        f"{counts[Change.UNCHANGED]} would not, {counts[Change.OTHER_REASONS]} only for other reasons, "
        f"{counts[Change.NOT_REPLAYABLE]} cannot be replayed"
    )
    for why, number in missing.items():
        click.echo(f"  {number} {why}")
