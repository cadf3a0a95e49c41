"""``tools/list`` as the server sent it: raw definitions, a bounded number of pages, unique names (R032, MCP-13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from kblockd_mcp.request import NotPossible

MAX_PAGES: Final = 64
MAX_TOOLS: Final = 2048

Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """One complete definition, and the arguments that the modern revision mirrors into headers."""

    definition: Mapping[str, Any]
    mirrored: Mapping[tuple[str, ...], str]

    def headers(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The ``Mcp-Param-*`` headers of a call."""
        return mcp_param_headers(self.mirrored, arguments)


async def fetch(ask: Ask) -> dict[str, Mapping[str, Any]]:
    """Name to definition. Raises ``NotPossible`` for a listing that is malformed, endless or ambiguous."""
    listed: dict[str, Mapping[str, Any]] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    while True:
        page = await ask("tools/list", {"cursor": cursor} if cursor is not None else {})
        _absorb(page.get("tools"), listed)
        cursor = page.get("nextCursor")
        if cursor is None:
            return listed
        if not isinstance(cursor, str) or cursor in cursors or len(cursors) >= MAX_PAGES or len(listed) > MAX_TOOLS:
            raise NotPossible("LISTING_ENDLESS", f"tools/list repeats a cursor or exceeds {MAX_PAGES} pages")
        cursors.add(cursor)


def tool(listed: Mapping[str, Mapping[str, Any]], name: str, *, modern: bool) -> ListedTool:
    """The tool with this exact name. Raises ``NotPossible`` if it is absent or its headers are invalid."""
    definition = listed.get(name)
    if definition is None:
        raise NotPossible("TOOL_UNKNOWN", f"the server lists no tool {name!r}; check the name in the action contract")
    schema = definition.get("inputSchema")
    if not modern:
        return ListedTool(definition, {})
    fault = find_invalid_x_mcp_header(schema)
    if fault is not None:
        raise NotPossible("TOOL_HEADERS_INVALID", fault)
    return ListedTool(definition, x_mcp_header_map(schema))


def _absorb(tools: Any, listed: dict[str, Mapping[str, Any]]) -> None:
    if not isinstance(tools, list):
        raise NotPossible("LISTING_MALFORMED", "tools/list did not return a list of tools")
    for definition in tools:
        name = definition.get("name") if isinstance(definition, dict) else None
        if not isinstance(name, str) or not name:
            raise NotPossible("LISTING_MALFORMED", "tools/list holds an entry without a name")
        if name in listed:
            raise NotPossible("TOOL_LISTED_TWICE", f"the server lists two tools {name!r}: which one runs is a guess")
        listed[name] = definition
