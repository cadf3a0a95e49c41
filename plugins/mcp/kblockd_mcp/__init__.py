"""MCP servers over Streamable HTTP as upstreams: revisions 2025-11-25 (handshake) and 2026-07-28 (stateless).

Lives here: the official SDK's session, driven one call at a time over the daemon's guarded exchange (``session``,
``wire``), a fresh ``tools/list`` as the server sent it (``listing``), the call as it goes out (``request``), and what
its end proves (``classify``, ``output``). May not live here: HTTP of its own, repetition of a call, anything of
kblockd beyond ``kblockd.upstream.adapter`` and ``kblockd.domain``. Source: DSP, mcp.md sections 1 and 2.
"""

from typing import Final

from kblockd.upstream.adapter import AdapterPlugin
from kblockd_mcp.adapter import McpPlugin

ADAPTER: Final[AdapterPlugin] = McpPlugin()
