"""``kblockd policy test``."""

from __future__ import annotations

import asyncio
import sys

import click

from kblockd import decision_point
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.cli.policy_source import Choice, source_options
from kblockd.policy import advice
from kblockd.policy.trials import Lines, Trials


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
    found = asyncio.run(decision_point.run_tests(settings, choice.draft(settings), only))
    if is_json():
        emit(found.to_json())
    else:
        _say(found, min_coverage)
    good = found.tests and not found.failed and found.rule_percent >= min_coverage
    sys.exit(0 if good else ERROR)


def _say(found: Trials, min_coverage: float) -> None:
    for test in found.failed:
        what = f"{test.file}:{test.line}:{test.column}: {test.name} fails: {test.why}; {advice.RULE_OR_TEST}"
        click.echo(plain(what), err=True)
    for package in found.missing:
        click.echo(plain(f"package {package} has no rule `result`; add a file with package {package}"), err=True)
    failed = len(found.failed)
    if failed:
        click.echo("`kblockd policy check` says more of the rules, `kblockd policy eval` what one input gets", err=True)
    elif found.tests:  # what ran no test has covered nothing, and says so below
        _say_coverage(found)
    click.echo(f"{len(found.tests) - failed} passed, {failed} failed")
    if not found.tests:
        click.echo("no test ran; name rules test_… in files …_test.rego, and see --run", err=True)
    elif not failed and found.rule_percent < min_coverage:
        click.echo(f"below {min_coverage:g} % of the rules; write tests in which the rules above fire", err=True)


def _say_coverage(found: Trials) -> None:
    """Only where every test passed: one that fails covers nothing, and would hide behind what it did not cover."""
    for rule in found.never_fired:
        click.echo(plain(f"{rule}: never fires in a test"))
    for lines in found.lines:
        if lines.missed:
            click.echo(plain(f"{lines.file}: not evaluated: {_ranges(lines)}"))
    click.echo(f"rules {found.rule_percent:.1f} % of {len(found.rules)}, lines {found.line_percent:.1f} %")


def _ranges(lines: Lines) -> str:
    """``3, 7-9``: neighbours together."""
    runs: list[list[int]] = []
    for line in lines.missed:
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
