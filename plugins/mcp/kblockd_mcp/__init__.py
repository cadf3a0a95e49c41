"""MCP servers over Streamable HTTP as upstreams: revisions 2025-11-25 (handshake) and 2026-07-28 (stateless).

Lives here: one session for one action, a request at a time over the daemon's guarded exchange (``session``, ``stream``,
``wire``), what came back to a request (``answers``), a fresh ``tools/list`` as the server sent it (``listing``), the
call as it goes out (``request``), and what its end proves (``classify``, ``output``). May not live here: HTTP of its
own, repetition of a call, anything of kblockd beyond ``kblockd.upstream.adapter`` and ``kblockd.domain``.

The official SDK brings the types and the rules of headers. Its client is not used: it turns a refused connection, a
lost answer and a cancellation into the same exception, repeats calls, and takes three times the CPU time of an action.
Source: DSP, mcp.md sections 1 and 2.
"""

from typing import Final

from kblockd.upstream.adapter import AdapterPlugin
from kblockd_mcp.adapter import McpPlugin

ADAPTER: Final[AdapterPlugin] = McpPlugin()
