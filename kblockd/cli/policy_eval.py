"""``kblockd policy eval``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import IO, Any, Final

import click

from kblockd.authoring import commands
from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.output import emit, is_json, json_option, plain
from kblockd.cli.policy_source import Choice, source_options
from kblockd.domain.canonical import MAX_BYTES, NotCanonical, parse
from kblockd.policy.deciding.entrypoints import ENTRYPOINTS
from kblockd.policy.deciding.explanation import Explanation
from kblockd.policy.deciding.floor import Ruling
from kblockd.system import RandomIds, SystemClock

SHORT: Final[Mapping[str, str]] = {entrypoint.split("/")[1]: entrypoint for entrypoint in ENTRYPOINTS}


@click.command("eval", short_help="Decides one input, and says which rules fired.")
@source_options
@json_option
@click.option("--entrypoint", "-e", type=click.Choice([*SHORT]), default="decision", show_default=True)
@click.option("--input", "-i", "document", type=click.File("rb"), default="-", help="A JSON file; - is standard input.")
@guarded
def eval_(choice: Choice, entrypoint: str, document: IO[bytes]) -> None:
    """Asks the configured bundle, or the folder or .tar.gz at PATH, as the daemon would ask it; nothing is executed.

    The answer comes from a temporary process: a running daemon is neither needed nor disturbed. Exits with 1 without a
    decision, which the daemon treats as a denial.
    """
    given = _read(document)
    settings = choice.settings()
    bundle = choice.draft(settings)
    explanation = asyncio.run(
        commands.explain(settings, bundle, SHORT[entrypoint], given, SystemClock(), RandomIds(), quoting=True)
    )
    if is_json():
        emit(_document(explanation, engine="opa" if settings.opa else "embedded"))
    else:
        _say(explanation)
    sys.exit(0 if explanation.decision else ERROR)


def _read(document: IO[bytes]) -> Mapping[str, Any]:
    try:
        given: Mapping[str, Any] = parse(document.read(MAX_BYTES + 1))
    except NotCanonical as error:
        name = getattr(document, "name", "-")
        raise ValueError(f"{name}: not an input: {error}; give one JSON object (`kblockd policy schema`)") from None
    return given


def _document(explanation: Explanation, *, engine: str) -> dict[str, Any]:
    decision = explanation.decision
    return {
        "entrypoint": explanation.entrypoint,
        "revision": explanation.revision,
        "engine": engine,
        "input_sha256": decision.input_sha256 if decision else "",
        "result": decision.result if decision else None,
        "reason": str(explanation.reason or ""),
        "message": explanation.failure.message if explanation.failure else "",
        "value": explanation.value,
        "ruling": _ruling(explanation.ruling) if explanation.ruling else None,
        "rules": [rule.to_json() for rule in explanation.rules],
    }


def _ruling(ruling: Ruling) -> dict[str, Any]:
    effect = ruling.stands
    approvals = {"count": effect.count, "roles": list(effect.roles), "floor_roles": list(effect.floor_roles)}
    return {"effect": effect.effect, "approvals": approvals, "raised": ruling.words()}


def _say(explanation: Explanation) -> None:
    if explanation.decision:
        click.echo(json.dumps(explanation.decision.result, indent=2, sort_keys=True))
        click.echo(f"engine {explanation.decision.engine}, revision {explanation.revision}")
        if explanation.ruling and explanation.ruling.is_raised:
            click.echo(plain(f"raised: {explanation.ruling.words()}"))
    else:
        message = explanation.failure.message if explanation.failure else "no answer"
        click.echo(plain(f"{explanation.reason}: {message}; the daemon denies"), err=True)
    click.echo("rules that fired:" if explanation.rules else "no rule fired")
    for rule in explanation.rules:
        click.echo(plain(f"  {rule}"))
