"""Reviewed definitions: a tool's current definition must have the digest that a person pinned (R179, MCP-13).

No pin: UNPINNED_TOOL; another digest: TOOL_CHANGED. The digest covers the canonical form of the whole definition, so
the order of keys does not matter and a changed description does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kblockd.domain import canonical
from kblockd.domain.errors import Reason
from kblockd.upstream.adapter import AdapterFault, ToolDescription
from kblockd.upstream.model import ToolPin

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_YAML_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class Digested(ToolDescription):
    """A description that the core made of an answer, with the digest of its definition; raises ``NotCanonical``.
    Plugins answer without."""

    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", canonical.digest(self.definition))


class Describes(Protocol):
    """The method of a guarded adapter that pinning needs."""

    async def describe(self, tool: str, deadline: float) -> ToolDescription:
        """Raises ``AdapterFault``."""
        ...


def definition_sha256(description: ToolDescription) -> str:
    """Lowercase hex over the canonical form; raises ``NotCanonical``."""
    return description.sha256 if isinstance(description, Digested) else canonical.digest(description.definition)


def refusal(pins: Mapping[str, ToolPin], description: ToolDescription) -> Reason | None:
    """None when the definition is the reviewed one; raises ``NotCanonical``."""
    pin = pins.get(description.name)
    if pin is None or pin.definition_sha256 is None:
        return Reason.UNPINNED_TOOL
    return None if pin.definition_sha256 == definition_sha256(description) else Reason.TOOL_CHANGED


async def describe_all(
    adapter: Describes, tools: Sequence[str], deadline: float
) -> dict[str, ToolDescription | AdapterFault]:
    """The current definitions, fetched one after the other, or the fault of a tool that cannot be described."""
    described: dict[str, ToolDescription | AdapterFault] = {}
    for tool in tools:
        try:
            described[tool] = await adapter.describe(tool, deadline)
        except AdapterFault as fault:
            described[tool] = fault
    return described


def tools_block(described: Mapping[str, ToolDescription | AdapterFault]) -> str:
    """The YAML block to review and paste; a tool without a definition is a comment, so that pasting stays safe."""
    lines = ["tools:"]
    for tool, description in described.items():
        if isinstance(description, AdapterFault):
            reason = " ".join(str(description).split())
            lines.append(f"  # {_key(tool)}: not described, {description.code}: {reason}")
        else:
            lines.append(f'  {_key(tool)}: {{definition_sha256: "{definition_sha256(description)}"}}')
    return "\n".join(lines) + "\n"


def _key(tool: str) -> str:
    plain = _PLAIN.fullmatch(tool) and tool.lower() not in _YAML_WORDS
    return tool if plain else json.dumps(tool)
