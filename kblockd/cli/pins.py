"""``kblockd upstream pin NAME``: the definitions as the upstream serves them now, to review and paste."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kblockd.cli.exits import ERROR, guarded
from kblockd.cli.options import Seconds, config_option
from kblockd.cli.output import emit, is_json, json_option, plain, pretty_json
from kblockd.config import Configuration, load
from kblockd.config.crosscheck import tools
from kblockd.domain.canonical import canonical
from kblockd.upstream.adapter import AdapterFault, ToolDescription
from kblockd.upstream.catalog import load_plugins, open_upstreams
from kblockd.upstream.pins import definition_sha256, describe_all, tools_block

Found = Mapping[str, ToolDescription | AdapterFault]


@click.group()
def upstream() -> None:
    """Upstreams and their tools."""


@upstream.command(short_help="Prints the tools block of upstream NAME, to review.")
@click.argument("name")
@click.option("--tool", "more", multiple=True, help="A tool that no contract names yet; may be repeated.")
@click.option(
    "--timeout",
    type=Seconds(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds for all tools.",
)
@config_option
@json_option
@guarded
def pin(name: str, more: Sequence[str], timeout: float, config: Path) -> None:
    """Asks upstream NAME for its tools: prints the definitions to review on standard error, and on standard output the
    `tools` block to paste into upstreams/NAME.yaml afterwards.

    Needs no daemon. Exits with 1 when a tool could not be described.
    """
    configuration = load(config, check_pins=False)
    if name not in configuration.upstreams:
        known = ", ".join(sorted(configuration.upstreams)) or "none"
        raise click.UsageError(f"no upstream {name!r} is configured; configured: {known}")
    wanted = _tools(configuration, name, more)
    if not wanted:
        raise click.UsageError(f"neither a contract nor upstreams/{name}.yaml names a tool; give --tool")
    found = asyncio.run(_describe(configuration, name, wanted, timeout))
    if is_json():
        emit({tool: _document(answer) for tool, answer in found.items()})
    else:
        _review(found)
        click.echo("\n".join(map(plain, tools_block(found).splitlines())))
    if any(isinstance(answer, AdapterFault) for answer in found.values()):
        where = configuration.upstreams[name].url
        click.echo(plain(f"next: see that {where} serves, and what upstreams/{name}.yaml lets through"), err=True)
    sys.exit(ERROR if any(isinstance(answer, AdapterFault) for answer in found.values()) else 0)


def _review(found: Found) -> None:
    for tool, answer in found.items():
        if not isinstance(answer, AdapterFault):
            shown = pretty_json(canonical(answer.definition))
            click.echo("\n".join(map(plain, (f"--- {tool}", *shown.splitlines()))), err=True)


def _tools(configuration: Configuration, name: str, more: Sequence[str]) -> list[str]:
    named = {
        tool
        for contract in configuration.contracts.values()
        if contract.tool.upstream == name
        for _, tool in tools(contract)
    }
    return sorted(named | set(configuration.upstreams[name].tools) | set(more))


async def _describe(configuration: Configuration, name: str, wanted: Sequence[str], seconds: float) -> Found:
    plugins = load_plugins(configuration.adapters)
    configs = {name: configuration.upstreams[name]}
    limit = configuration.limits.response_bytes
    async with open_upstreams(configs, plugins, max_response_bytes=limit) as upstreams:
        return await describe_all(upstreams[name].read, wanted, time.monotonic() + seconds)


def _document(answer: ToolDescription | AdapterFault) -> dict[str, object]:
    if isinstance(answer, AdapterFault):
        return {"fault": answer.code, "message": str(answer)}
    return {
        "definition_sha256": definition_sha256(answer),
        "server_version": answer.server_version,
        "definition": answer.definition,
    }
