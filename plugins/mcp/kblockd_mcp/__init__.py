"""MCP servers over Streamable HTTP as upstreams: revisions 2025-11-25 (handshake) and 2026-07-28 (stateless).

``session``, ``stream``, ``wire``: one session per action, one request at a time, over the daemon's guarded exchange.
``answers``: the answer to a request. ``listing``: a fresh ``tools/list``. ``request``: the outgoing call. ``classify``,
``output``: what its end proves. May not live here: its own HTTP, repetition of a call, anything of kblockd beyond
``kblockd.upstream.adapter`` and ``kblockd.domain``.

The official SDK provides the types and the header rules. Its client is not used: it turns a refused connection, a lost
answer and a cancellation into the same exception, repeats calls, and takes three times the CPU time per action.
Source: R176 to R209, plugins/mcp/README.md.
"""

from typing import Final

from kblockd.upstream.adapter import AdapterPlugin
from kblockd_mcp.adapter import McpPlugin

ADAPTER: Final[AdapterPlugin] = McpPlugin()
