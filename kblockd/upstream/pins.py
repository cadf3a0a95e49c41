"""Reviewed definitions: what a tool says about itself now must hash to what a person has pinned (R179, MCP-13).

Absent: UNPINNED_TOOL; different: TOOL_CHANGED. The digest is over the canonical form of the whole definition, so keys
in another order are the same and a changed description is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kblockd.domain import canonical
from kblockd.domain.errors import Reason
from kblockd.upstream.adapter import AdapterFault, ToolDescription
from kblockd.upstream.model import ToolPin

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_YAML_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class Describes(Protocol):
    """The part of a guarded adapter that pinning needs."""

    async def describe(self, tool: str, deadline: float) -> ToolDescription:
        """Raises ``AdapterFault``."""
        ...


def definition_sha256(description: ToolDescription) -> str:
    """Lowercase hex over the canonical form; raises ``NotCanonical``."""
    return canonical.digest(description.definition)


def refusal(pins: Mapping[str, ToolPin], description: ToolDescription) -> Reason | None:
    """None when the definition is the reviewed one; raises ``NotCanonical``."""
    pin = pins.get(description.name)
    if pin is None or pin.definition_sha256 is None:
        return Reason.UNPINNED_TOOL
    return None if pin.definition_sha256 == definition_sha256(description) else Reason.TOOL_CHANGED


async def describe_all(
    adapter: Describes, tools: Sequence[str], deadline: float
) -> dict[str, ToolDescription | AdapterFault]:
    """The definitions as served now, one after the other; a tool that cannot be described has its fault instead."""
    found: dict[str, ToolDescription | AdapterFault] = {}
    for tool in tools:
        try:
            found[tool] = await adapter.describe(tool, deadline)
        except AdapterFault as fault:
            found[tool] = fault
    return found


def tools_block(found: Mapping[str, ToolDescription | AdapterFault]) -> str:
    """The YAML block to review and paste; what could not be described is a comment, so that pasting stays safe."""
    lines = ["tools:"]
    for tool, answer in found.items():
        if isinstance(answer, AdapterFault):
            reason = " ".join(str(answer).split())
            lines.append(f"  # {_key(tool)}: not described, {answer.code}: {reason}")
        else:
            lines.append(f'  {_key(tool)}: {{definition_sha256: "{definition_sha256(answer)}"}}')
    return "\n".join(lines) + "\n"


def _key(tool: str) -> str:
    plain = _PLAIN.fullmatch(tool) and tool.lower() not in _YAML_WORDS
    return tool if plain else json.dumps(tool)
