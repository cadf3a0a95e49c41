"""``kblockd upstream pin NAME``: the upstream's current definitions, to review and paste."""

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

Described = Mapping[str, ToolDescription | AdapterFault]


@click.group()
def upstream() -> None:
    """Upstreams and their tools."""


@upstream.command(short_help="Prints the tools block of upstream NAME, to review.")
@click.argument("name")
@click.option("--tool", "extra", multiple=True, help="A tool that no contract names yet; may be repeated.")
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
def pin(name: str, extra: Sequence[str], timeout: float, config: Path) -> None:
    """Asks upstream NAME for its tools: prints the definitions to review on standard error, and on standard output the
    `tools` block to paste into upstreams/NAME.yaml afterwards.

    Needs no daemon. Exits with 1 when a tool could not be described.
    """
    configuration = load(config, check_pins=False)
    if name not in configuration.upstreams:
        known = ", ".join(sorted(configuration.upstreams)) or "none"
        raise click.UsageError(f"no upstream {name!r} is configured; configured: {known}")
    wanted = _tools(configuration, name, extra)
    if not wanted:
        raise click.UsageError(f"neither a contract nor upstreams/{name}.yaml names a tool; give --tool")
    described = asyncio.run(_describe(configuration, name, wanted, timeout))
    if is_json():
        emit({tool: _document(description) for tool, description in described.items()})
    else:
        _review(described)
        click.echo("\n".join(map(plain, tools_block(described).splitlines())))
    if any(isinstance(description, AdapterFault) for description in described.values()):
        where = configuration.upstreams[name].url
        click.echo(plain(f"next: check that {where} is serving, and upstreams/{name}.yaml"), err=True)
        sys.exit(ERROR)


def _review(described: Described) -> None:
    for tool, description in described.items():
        if not isinstance(description, AdapterFault):
            shown = pretty_json(canonical(description.definition))
            click.echo("\n".join(map(plain, (f"--- {tool}", *shown.splitlines()))), err=True)


def _tools(configuration: Configuration, name: str, extra: Sequence[str]) -> list[str]:
    named = {
        tool
        for contract in configuration.contracts.values()
        if contract.tool.upstream == name
        for _, tool in tools(contract)
    }
    return sorted(named | set(configuration.upstreams[name].tools) | set(extra))


async def _describe(configuration: Configuration, name: str, wanted: Sequence[str], seconds: float) -> Described:
    plugins = load_plugins(configuration.adapters)
    configs = {name: configuration.upstreams[name]}
    limit = configuration.limits.response_bytes
    async with open_upstreams(configs, plugins, max_response_bytes=limit) as upstreams:
        return await describe_all(upstreams[name].read, wanted, time.monotonic() + seconds)


def _document(description: ToolDescription | AdapterFault) -> dict[str, object]:
    if isinstance(description, AdapterFault):
        return {"fault": description.code, "message": str(description)}
    return {
        "definition_sha256": definition_sha256(description),
        "server_version": description.server_version,
        "definition": description.definition,
    }
