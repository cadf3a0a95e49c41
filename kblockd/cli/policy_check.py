"""``kblockd policy check|schema``."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kblockd import decision_point
from kblockd.authoring import commands
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.authoring.reviewer import SCHEMA_FILE, schema_text
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.cli.policy_source import Choice, source_options
from kblockd.config import PolicySettings
from kblockd.domain.clock import rfc3339
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.bundles.files import SIGNATURES
from kblockd.policy.faults import BundleFault, BundleRefused
from kblockd.policy.opa.tarball import build


@dataclass(frozen=True, slots=True)
class _Checked:
    """``bundle`` is None if it may not come into force; ``faults`` say why."""

    revision: str
    bundle: Bundle | None
    faults: Sequence[BundleFault]
    findings: Sequence[ReviewFinding]

    def passes(self, *, strict: bool) -> bool:
        """Whether the bundle is accepted without errors, and with ``strict`` without warnings."""
        failing = ("error", "warning") if strict else ("error",)
        return self.bundle is not None and not any(finding.level in failing for finding in self.findings)


@click.command(short_help="Lints, compiles, tests and reviews a policy bundle.")
@source_options
@json_option
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("--draft", is_flag=True, help="It need not be signed yet; nothing is written or noted.")
@click.option(
    "--bundle",
    "tarball",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the bundle (.tar.gz) for an OPA that somebody else runs.",
)
@guarded
def check(choice: Choice, strict: bool, draft: bool, tarball: Path | None) -> None:
    """Checks the configured bundle, or the folder or .tar.gz at PATH; activates nothing.

    First what a reload would refuse: syntax, the linter, the five entry points and their types, the bundle's tests.
    Then a review. Errors: annotations that name no schema, references to keys that the input never has. Warnings:
    packages that nothing uses, rules that allow more than they seem to.

    For a remote OPA it notes that the revision passed, in the file that policy.opa.revisions names.
    """
    if draft and tarball:
        raise click.UsageError("--bundle writes what may come into force: sign it first, and leave --draft out")
    settings = choice.settings()
    checked = asyncio.run(_check(settings, _read(choice, settings, draft=draft)))
    noted = None
    if checked.bundle and checked.passes(strict=strict) and not draft:
        if tarball:
            tarball.write_bytes(build(checked.bundle))
        noted = decision_point.note(settings, checked.bundle, rfc3339(dt.datetime.now(dt.UTC)))
    if is_json():
        emit(_document(checked, noted))
    else:
        _say(checked, noted)
    sys.exit(0 if checked.passes(strict=strict) else ERROR)


@click.command(short_help="Writes the JSON schema of the input.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@guarded
def schema(folder: Path | None) -> None:
    """Writes the schema of `input` as FOLDER/input.json, or to standard output.

    In policies it is `schemas: [{input: schema.input}]`; OPA finds it with `opa check --schema FOLDER POLICIES`. Write
    is_null(input.approval) there: OPA's type check refuses `== null`.
    """
    if folder is None:
        click.echo(schema_text(), nl=False)
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEMA_FILE).write_text(schema_text())
    click.echo(plain(f"{folder / SCHEMA_FILE}: use it with `opa check --schema {folder} POLICIES`"))


def _read(choice: Choice, settings: PolicySettings, *, draft: bool) -> Bundle:
    if draft:
        return choice.draft(settings)
    try:
        return choice.read(settings)
    except BundleRefused as refused:
        if refused.faults[0].file == SIGNATURES:
            click.echo("check an unsigned bundle with --draft", err=True)
        raise


async def _check(settings: PolicySettings, bundle: Bundle) -> _Checked:
    """Also reviews a refused bundle, because a finding may explain the refusal."""
    passed: Bundle | None = None
    faults: Sequence[BundleFault] = ()
    try:
        passed = await decision_point.check(settings, bundle)
    except BundleRefused as refused:
        faults = refused.faults
    findings = await commands.review(settings, bundle)
    if passed is None:  # notes only say what could not be reviewed, which the refusal covers
        findings = tuple(finding for finding in findings if finding.level != "note")
    return _Checked(bundle.revision, passed, faults, findings)


def _document(checked: _Checked, noted: Path | None) -> dict[str, Any]:
    return {
        "revision": checked.revision,
        "tests": checked.bundle.tests if checked.bundle else 0,
        "accepted": checked.bundle is not None,
        "noted": str(noted or ""),
        "faults": [fault.to_json() for fault in checked.faults],
        "findings": [finding.to_json() for finding in checked.findings],
    }


def _say(checked: _Checked, noted: Path | None) -> None:
    for line in (*checked.faults, *checked.findings):
        click.echo(plain(str(line)), err=True)
    counted = _counted(checked.findings)
    if checked.bundle is None:
        click.echo(f"revision {checked.revision} would be refused{counted}", err=True)
        return
    click.echo(f"revision {checked.revision}, {checked.bundle.tests} tests passed{counted}")
    if noted:
        click.echo(plain(f"noted in {noted}: the remote OPA may serve it"))


def _counted(findings: Sequence[ReviewFinding]) -> str:
    levels = [finding.level for finding in findings]
    counts = [(levels.count(level), level) for level in ("error", "warning", "note")]
    return "".join(f", {count} {level}{'s' if count > 1 else ''}" for count, level in counts if count)
