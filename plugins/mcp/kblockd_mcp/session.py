"""One session over one exchange: opened, used for one action, closed; never shared or reused.

A session per action costs a round trip or two, but no other call can break it, and a server that has lost its sessions
gets a fresh handshake (MCP-09; plugins/mcp/README.md#what-the-sdks-client-makes-of-it).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import httpx2
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, MCP_PROTOCOL_VERSION_HEADER, encode_header_value
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    Implementation,
    InitializeResult,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from kblockd.domain.answer import Numbers
from kblockd_mcp import answers
from kblockd_mcp.answers import RpcAnswer
from kblockd_mcp.request import NotPossible
from kblockd_mcp.settings import HANDSHAKE, MODERN
from kblockd_mcp.stream import Stream
from kblockd_mcp.wire import EVENTS, JSON, Broken, SessionWire, media_type, repeatable

CALL: Final = "tools/call"
SESSION_HEADER: Final = "mcp-session-id"
END_SECONDS: Final = 1.0
CLIENT: Final = {"name": "kblockd", "version": "1"}
_MODERN_META: Final[Mapping[str, Any]] = {
    PROTOCOL_VERSION_META_KEY: MODERN,
    CLIENT_INFO_META_KEY: CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},  # none: the server may not send requests
}


class Session:
    """Requests of one session, one at a time, in the protocol revision given by ``modern``.

    ``server_version`` is self-reported, in the handshake or with the latest answer. There are no time-outs of its own:
    the exchange ends at the action's deadline, and nothing here may end earlier (MCP-11).
    """

    def __init__(self, wire: SessionWire, *, modern: bool) -> None:
        self.wire = wire
        self.modern = modern
        self.session_id = ""
        self.server_version = ""
        self.request_id = 0
        self._answered = False  # the latest request got an answer
        self._status = 0

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The raw result of one request without effect; raises ``NotPossible``."""
        try:
            answer = await self._request(method, params, {})
        except Broken as broken:
            raise NotPossible(broken.code, f"{method}: the transport failed ({broken.code})") from None
        if answer.result is None:
            raise self._refused(method, answer)
        if self.modern:
            self.server_version = _version(answer.result.get("_meta"))
        return answer.result

    async def call(
        self, params: Mapping[str, Any], headers: Mapping[str, str], numbers: Numbers = "refuse"
    ) -> RpcAnswer:
        """The one ``tools/call``, whose fate is in the wire's notes; raises RuntimeError at a second one."""
        try:
            return await self._request(CALL, params, headers, numbers)
        except Broken:
            return RpcAnswer()

    async def discover(self) -> None:
        """Asks a modern server for its revisions; raises ``NotPossible`` (PROTOCOL_MISMATCH if it is not modern)."""
        supported = (await self.ask("server/discover", {})).get("supportedVersions")
        if not isinstance(supported, list) or MODERN not in supported:
            raise NotPossible("PROTOCOL_MISMATCH", f"server/discover: the server speaks {supported}, not {MODERN}")

    async def handshake(self) -> None:
        """``initialize`` and ``notifications/initialized``; raises ``NotPossible``."""
        raw = await self.ask("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT})
        try:
            result = InitializeResult.model_validate(raw, by_name=False)
        except ValidationError as error:
            raise NotPossible("PROTOCOL_MISMATCH", f"initialize: {error}") from None
        version = result.protocol_version
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NotPossible("PROTOCOL_MISMATCH", f"initialize: the server speaks {version!r}, not {HANDSHAKE}")
        self.server_version = result.server_info.version
        self.wire.headers[MCP_PROTOCOL_VERSION_HEADER] = version
        try:
            await self.wire.notify({"method": "notifications/initialized"})
        except Broken as broken:
            raise NotPossible(broken.code, f"notifications/initialized: {broken.code}") from None

    async def close(self) -> None:
        """Deletes a handshake session, so that sessions do not pile up on the server. Best effort, for at most a second
        and half the remaining time, so that the answer does not become late.

        Not after a request without an answer: these bytes would count against the proof that a call was not sent.
        """
        if self.session_id and self._answered:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(min(END_SECONDS, self.wire.left() / 2)):
                    await self.wire.delete()

    async def _request(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str], numbers: Numbers | None = None
    ) -> RpcAnswer:
        self.request_id = next(self.wire.ids)
        self._answered = False
        if self.modern:
            params = {**params, "_meta": {**params.get("_meta", {}), **_MODERN_META}}
            headers = {**_modern_headers(method, params), **headers}
        message = {"id": self.request_id, "method": method, **({"params": params} if params else {})}
        response = await (self.wire.post_call if method == CALL else self.wire.post)(message, headers)
        self._status = response.status_code
        try:
            if method == "initialize":
                self._use_session_id(response)
            answer = await self._answer(response, numbers)
        finally:
            await response.aclose()
        self._answered = True
        return answer

    def _use_session_id(self, response: httpx2.Response) -> None:
        """Raises ``NotPossible`` for a session id that cannot be sent back."""
        session_id = response.headers.get(SESSION_HEADER, "")
        if session_id and not repeatable(session_id):
            raise NotPossible("PROTOCOL_FAULT", "initialize: a header cannot carry the session id")
        if session_id:
            self.session_id = self.wire.headers[SESSION_HEADER] = session_id

    async def _answer(self, response: httpx2.Response, numbers: Numbers | None) -> RpcAnswer:
        """The JSON-RPC answer in an HTTP response; without one a synthetic error, which proves nothing."""
        status, kind = response.status_code, media_type(response)
        if status == 202:
            return answers.failed(INVALID_REQUEST, "a request was answered with 202 Accepted")
        if status < 400 and kind == EVENTS:
            return await Stream(self.wire, self.request_id, numbers, handshake=not self.modern).answer(response)
        if kind != JSON:
            return answers.failed(INTERNAL_ERROR if status >= 400 else INVALID_REQUEST, f"content type {kind!r}")
        message = answers.read(await response.aread(), self.request_id, numbers)
        answer = message if isinstance(message, RpcAnswer) else RpcAnswer()
        if status >= 400 and answer.error is None:
            return answers.failed(INTERNAL_ERROR, f"HTTP {status} without a JSON-RPC error")
        return answer

    def _refused(self, method: str, answer: RpcAnswer) -> NotPossible:
        status, error = self._status, answer.error
        if status in (401, 403):
            return NotPossible("UPSTREAM_UNAUTHORIZED", f"{method}: HTTP {status}; check the credential")
        if error is None:
            return NotPossible("PROTOCOL_FAULT", f"{method}: HTTP {status} without an answer")
        return NotPossible("PROTOCOL_REFUSED", f"{method}: HTTP {status}, error {error.code}: {error.message}")


def _modern_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    headers = {MCP_PROTOCOL_VERSION_HEADER: MODERN, MCP_METHOD_HEADER: method}
    if method == CALL:
        headers[MCP_NAME_HEADER] = encode_header_value(params["name"])
    return headers


def _version(meta: Any) -> str:
    """The version that a modern server reports with each result, or empty."""
    try:
        return Implementation.model_validate(meta[SERVER_INFO_META_KEY], by_name=False).version
    except (TypeError, KeyError, ValidationError):
        return ""
