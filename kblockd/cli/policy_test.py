"""``kblockd policy test``."""

from __future__ import annotations

import asyncio
import sys

import click

from kblockd.authoring import commands
from kblockd.authoring.trials import Lines, Trials
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.cli.policy_source import Choice, source_options
from kblockd.policy.rego import advice


@click.command("test", short_help="Runs the tests of a bundle, with coverage.")
@source_options
@json_option
@click.option("--run", "only", default="", metavar="REGEX", help="Only tests whose name matches (RE2).")
@click.option(
    "--min-coverage",
    type=click.FloatRange(0, 100),
    default=0.0,
    metavar="PERCENT",
    help="Fail when fewer of the rules fired in a test.",
)
@guarded
def test_(choice: Choice, only: str, min_coverage: float) -> None:
    """Runs every rule named test_… in files …_test.rego; the same files pass `opa test`.

    A rule is covered when it fired in a test: its condition held. A line is covered when something on it was
    evaluated. The first is the stricter measure: a refusal that no test ever provoked is a covered line. Rules without
    a condition (tables) do not count, nor do the tests themselves.

    Exits with 1 when a test fails, when there is none, or when coverage stays below --min-coverage.
    """
    settings = choice.settings()
    trials = asyncio.run(commands.run_tests(settings, choice.draft(settings), only))
    if is_json():
        emit(trials.to_json())
    else:
        _say(trials, min_coverage)
    good = trials.tests and not trials.failed and trials.rule_percent >= min_coverage
    sys.exit(0 if good else ERROR)


def _say(trials: Trials, min_coverage: float) -> None:
    for test in trials.failed:
        what = f"{test.file}:{test.line}:{test.column}: {test.name} fails: {test.why}; {advice.RULE_OR_TEST}"
        click.echo(plain(what), err=True)
    for package in trials.missing:
        click.echo(plain(f"package {package} has no rule `result`; add a file with package {package}"), err=True)
    failed = len(trials.failed)
    if failed:
        click.echo("`kblockd policy check` says more of the rules, `kblockd policy eval` what one input gets", err=True)
    elif trials.tests:  # a run without tests is reported below
        _say_coverage(trials)
    click.echo(f"{len(trials.tests) - failed} passed, {failed} failed")
    if not trials.tests:
        click.echo("no test ran; name rules test_… in files …_test.rego, and see --run", err=True)
    elif not failed and trials.rule_percent < min_coverage:
        click.echo(f"below {min_coverage:g} % of the rules; write tests in which the rules above fire", err=True)


def _say_coverage(trials: Trials) -> None:
    """Only called if every test passed: a failing test covers nothing and would get lost among uncovered rules."""
    for rule in trials.never_fired:
        click.echo(plain(f"{rule}: never fires in a test"))
    for lines in trials.lines:
        if lines.missed:
            click.echo(plain(f"{lines.file}: not evaluated: {_ranges(lines)}"))
    click.echo(f"rules {trials.rule_percent:.1f} % of {len(trials.rules)}, lines {trials.line_percent:.1f} %")


def _ranges(lines: Lines) -> str:
    """``3, 7-9``: adjacent lines as a range."""
    runs: list[list[int]] = []
    for line in lines.missed:
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
