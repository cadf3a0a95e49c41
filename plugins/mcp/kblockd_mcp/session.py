"""One session of one exchange: opened, used for one action, ended. Nothing of it is shared or reused.

A session of its own for each action costs a round trip or two and buys that no sibling can break it and that a server
that has forgotten a session is met again with a fresh handshake (MCP-09; mcp.md section 2).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx2
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    PROTOCOL_VERSION_META_KEY,
    DiscoverRequest,
    DiscoverResult,
    Implementation,
    Request,
    RequestParams,
    ServerCapabilities,
)
from pydantic import TypeAdapter, ValidationError

from kblockd.upstream.adapter import AdapterContext, Exchange
from kblockd_mcp.conversation import Conversation, Incoming, Outgoing
from kblockd_mcp.request import NotPossible
from kblockd_mcp.settings import MODERN
from kblockd_mcp.wire import SESSION_HEADER, Wire

END_SECONDS: Final = 1.0
CLIENT: Final = Implementation(name="kblockd", version="1")
# The SDK types results as models; a dict comes back as it came.
RAW: Final[TypeAdapter[Any]] = TypeAdapter(dict[str, Any])
_T = TypeVar("_T")


@dataclass(slots=True)
class Session:
    """An open session: requests go out one at a time."""

    sdk: ClientSession
    wire: Wire
    conversation: Conversation

    async def ask(self, request: Request[Any, Any]) -> dict[str, Any]:
        """The raw result of one request without effect; raises ``NotPossible``."""
        method = request.model_dump()["method"]
        try:
            await self.sdk.send_request(request, RAW)
        except MCPError as error:
            raise refused(self.wire, method, error) from None
        except (ValidationError, RuntimeError) as error:
            if self.conversation.result is None:
                raise NotPossible("PROTOCOL_FAULT", f"{method}: {error}") from None
        if self.conversation.result is None:
            raise NotPossible("PROTOCOL_FAULT", f"{method}: no answer was kept")
        return self.conversation.result


async def within(
    context: AdapterContext,
    exchange: Exchange,
    wire: Wire,
    trace: Mapping[str, str],
    work: Callable[[Session], Awaitable[_T]],
) -> _T:
    """Runs ``work`` in a session that has said nothing yet; what it raises is raised here, never in a group.

    The exchange stays open, the caller closes it. Time-outs are the exchange's: it ends at the action's deadline, and
    nothing below it may end earlier (MCP-11).
    """
    conversation = Conversation(trace)
    client = httpx2.AsyncClient(transport=wire, trust_env=False, timeout=None, follow_redirects=False)
    done: list[_T] = []
    fault: Exception | None = None
    try:
        async with (
            client,
            streamable_http_client(
                context.url, http_client=client, terminate_on_close=False, max_sse_event_size=context.max_response_bytes
            ) as (incoming, outgoing),
            ClientSession(
                Incoming(incoming, conversation), Outgoing(outgoing, conversation), client_info=CLIENT
            ) as sdk,
        ):
            try:
                done.append(await work(Session(sdk, wire, conversation)))
            except Exception as error:  # raised below: a task group would wrap it
                fault = error
            await _end(client, context.url, wire, sdk)
    except Exception:
        # Taking a session down can fail in the SDK (a late answer meets a closed stream); what was found stays found.
        if fault is None and not done:
            raise
    if fault is not None:
        raise fault
    return done[0]


async def discover(session: Session) -> DiscoverResult:
    """Asks a modern server who it is; raises ``NotPossible`` (PROTOCOL_MISMATCH when it is not modern)."""
    adopt_modern(session)
    raw = await session.ask(DiscoverRequest(params=RequestParams(_meta={PROTOCOL_VERSION_META_KEY: MODERN})))
    try:
        result = DiscoverResult.model_validate(raw)
        session.sdk.adopt(result)
    except (ValidationError, RuntimeError) as error:
        raise NotPossible("PROTOCOL_MISMATCH", f"server/discover: {error}") from None
    return result


def adopt_modern(session: Session) -> None:
    """The stateless revision without a word on the wire."""
    session.sdk.adopt(
        DiscoverResult(
            supported_versions=[MODERN],
            capabilities=ServerCapabilities(),
            result_type="complete",
            ttl_ms=0,
            cache_scope="public",
        )
    )


async def handshake(session: Session) -> None:
    """``initialize`` and ``notifications/initialized``; raises ``NotPossible``."""
    try:
        await session.sdk.initialize()
    except MCPError as error:
        raise refused(session.wire, "initialize", error) from None
    except (ValidationError, RuntimeError) as error:
        raise NotPossible("PROTOCOL_MISMATCH", f"initialize: {error}") from None


def refused(wire: Wire, method: str, error: MCPError) -> NotPossible:
    """Why a request without effect failed: the wire's reason first, then the server's."""
    if wire.failure:
        return NotPossible(wire.failure, f"{method}: the transport failed ({wire.failure})")
    if wire.status in (401, 403):
        return NotPossible("UPSTREAM_UNAUTHORIZED", f"{method}: HTTP {wire.status}; check the credential")
    return NotPossible("PROTOCOL_REFUSED", f"{method}: HTTP {wire.status}, error {error.code}: {error.message}")


async def _end(client: httpx2.AsyncClient, url: str, wire: Wire, sdk: ClientSession) -> None:
    """DELETE of the handshake era, so that sessions do not pile up on the server. Best effort, at most a second.

    Not after a call that failed on the wire: these bytes would count against the proof that it was not sent.
    """
    if not wire.session_id or wire.failure or (wire.call is not None and wire.call.failure):
        return
    headers = {SESSION_HEADER: wire.session_id, "mcp-protocol-version": sdk.protocol_version or ""}
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(END_SECONDS):
            await client.delete(url, headers=headers)
