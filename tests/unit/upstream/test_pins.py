"""Pins of reviewed definitions."""

from __future__ import annotations

import time
from io import StringIO

from ruamel.yaml import YAML

from kblockd.domain.errors import Reason
from kblockd.upstream.adapter import AdapterFault, ToolDescription
from kblockd.upstream.model import ToolPin
from kblockd.upstream.pins import definition_sha256, describe_all, refusal, tools_block

REVIEWED = ToolDescription("refund", "1", {"name": "refund", "schema": {"a": 1, "b": [1, 2]}, "description": "pays"})
REORDERED = ToolDescription("refund", "2", {"description": "pays", "schema": {"b": [1, 2], "a": 1}, "name": "refund"})


def _pins(digest: str | None) -> dict[str, ToolPin]:
    return {"refund": ToolPin(definition_sha256=digest)}


def test_mcp_13_reorder_is_the_same_and_any_change_is_not() -> None:
    """MCP-13: the canonical form decides; the self-reported version is no security input."""
    pins = _pins(definition_sha256(REVIEWED))
    assert refusal(pins, REVIEWED) is None
    assert refusal(pins, REORDERED) is None
    for change in ({"description": "pays more"}, {"schema": {"a": 1, "b": [2, 1]}}, {"extra": None}):
        changed = ToolDescription("refund", "1", {**REVIEWED.definition, **change})
        assert refusal(pins, changed) is Reason.TOOL_CHANGED


def test_absent_is_unpinned() -> None:
    """kblockd/upstream/README.md#pins: without a pin, or without its digest."""
    assert refusal({}, REVIEWED) is Reason.UNPINNED_TOOL
    assert refusal(_pins(None), REVIEWED) is Reason.UNPINNED_TOOL


class Server:
    """Describes everything but one tool."""

    async def describe(self, tool: str, deadline: float) -> ToolDescription:
        if tool == "gone":
            raise AdapterFault("TOOL_UNKNOWN", "no tool\n  # gone: {definition_sha256: x}")
        return ToolDescription(tool, "1", {"name": tool})


async def test_the_block_can_be_pasted() -> None:
    """It is YAML whatever the tools are called, and what failed is a comment that cannot break out of its line."""
    names = ["refund", "get.order-2", "on", "1e3", "a: b"]
    found = await describe_all(Server(), [*names, "gone"], time.monotonic() + 10)
    block = tools_block(found)
    parsed = YAML(typ="safe").load(StringIO(block))
    assert list(parsed["tools"]) == names
    assert parsed["tools"]["on"] == {"definition_sha256": definition_sha256(ToolDescription("on", "", {"name": "on"}))}
    assert "# gone: not described, TOOL_UNKNOWN" in block
