"""One session of one exchange: opened, used for one action, ended. Nothing of it is shared or reused.

A session of its own for each action costs a round trip or two and buys that no sibling can break it and that a server
that has forgotten a session is met again with a fresh handshake (MCP-09; mcp.md section 2).
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
from kblockd_mcp.answers import Answer
from kblockd_mcp.request import NotPossible
from kblockd_mcp.settings import HANDSHAKE, MODERN
from kblockd_mcp.stream import Stream
from kblockd_mcp.wire import EVENTS, JSON, Broken, Wire, media_type, repeatable

CALL: Final = "tools/call"
SESSION_HEADER: Final = "mcp-session-id"
END_SECONDS: Final = 1.0
CLIENT: Final = {"name": "kblockd", "version": "1"}
_MODERN_META: Final[Mapping[str, Any]] = {
    PROTOCOL_VERSION_META_KEY: MODERN,
    CLIENT_INFO_META_KEY: CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},  # none: the server may ask for nothing
}


class Session:
    """Requests of one session, one at a time, in the revision that ``modern`` says.

    ``server_version`` is what the server says of itself: in the handshake, or with its latest answer.
    Time-outs are the exchange's: it ends at the action's deadline, and nothing here may end earlier (MCP-11).
    """

    def __init__(self, wire: Wire, *, modern: bool) -> None:
        self.wire = wire
        self.modern = modern
        self.session_id = ""
        self.server_version = ""
        self.request_id = 0
        self._answered = False  # the latest request
        self._status = 0

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The raw result of one request without effect; raises ``NotPossible``."""
        try:
            answer = await self._asked(method, params, {})
        except Broken as broken:
            raise NotPossible(broken.code, f"{method}: the transport failed ({broken.code})") from None
        if answer.result is None:
            raise self._refused(method, answer)
        if self.modern:
            self.server_version = _version(answer.result.get("_meta"))
        return answer.result

    async def call(self, params: Mapping[str, Any], headers: Mapping[str, str], numbers: Numbers = "refuse") -> Answer:
        """The one ``tools/call``. What became of it stands in the wire's notes; RuntimeError at a second one."""
        try:
            return await self._asked(CALL, params, headers, numbers)
        except Broken:
            return Answer()

    async def discover(self) -> None:
        """Asks a modern server who it is; raises ``NotPossible`` (PROTOCOL_MISMATCH when it is not modern)."""
        supported = (await self.ask("server/discover", {})).get("supportedVersions")
        if not isinstance(supported, list) or MODERN not in supported:
            raise NotPossible("PROTOCOL_MISMATCH", f"server/discover: the server speaks {supported}, not {MODERN}")

    async def handshake(self) -> None:
        """``initialize`` and ``notifications/initialized``; raises ``NotPossible``."""
        raw = await self.ask("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT})
        try:
            found = InitializeResult.model_validate(raw, by_name=False)
        except ValidationError as error:
            raise NotPossible("PROTOCOL_MISMATCH", f"initialize: {error}") from None
        version = found.protocol_version
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NotPossible("PROTOCOL_MISMATCH", f"initialize: the server speaks {version!r}, not {HANDSHAKE}")
        self.server_version = found.server_info.version
        self.wire.headers[MCP_PROTOCOL_VERSION_HEADER] = version
        try:
            await self.wire.say({"method": "notifications/initialized"})
        except Broken as broken:
            raise NotPossible(broken.code, f"notifications/initialized: {broken.code}") from None

    async def close(self) -> None:
        """DELETE of the handshake era, so that sessions do not pile up on the server. Best effort, at most a second,
        and no longer than the answer can wait: the action's deadline would make a late one of it.

        Not after a request that got no answer: these bytes would count against the proof that a call was not sent.
        """
        if self.session_id and self._answered:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(min(END_SECONDS, self.wire.left() / 2)):
                    await self.wire.delete()

    async def _asked(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str], numbers: Numbers | None = None
    ) -> Answer:
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
                self._remember(response)
            answer = await self._answer(response, numbers)
        finally:
            await response.aclose()
        self._answered = True
        return answer

    def _remember(self, response: httpx2.Response) -> None:
        """Raises ``NotPossible`` for a session id that cannot be repeated."""
        found = response.headers.get(SESSION_HEADER, "")
        if found and not repeatable(found):
            raise NotPossible("PROTOCOL_FAULT", "initialize: no header can carry the session id")
        if found:
            self.session_id = self.wire.headers[SESSION_HEADER] = found

    async def _answer(self, response: httpx2.Response, numbers: Numbers | None) -> Answer:
        """What an answer of HTTP says; for one that says nothing an error is made up, which proves nothing."""
        status, kind = response.status_code, media_type(response)
        if status == 202:
            return answers.failed(INVALID_REQUEST, "a request was answered with 202 Accepted")
        if status < 400 and kind == EVENTS:
            return await Stream(self.wire, self.request_id, numbers, handshake=not self.modern).answer(response)
        if kind != JSON:
            return answers.failed(INTERNAL_ERROR if status >= 400 else INVALID_REQUEST, f"content type {kind!r}")
        found = answers.read(await response.aread(), self.request_id, numbers)
        answer = found if isinstance(found, Answer) else Answer()
        if status >= 400 and answer.error is None:
            return answers.failed(INTERNAL_ERROR, f"HTTP {status} without an error of JSON-RPC")
        return answer

    def _refused(self, method: str, answer: Answer) -> NotPossible:
        status, error = self._status, answer.error
        if status in (401, 403):
            return NotPossible("UPSTREAM_UNAUTHORIZED", f"{method}: HTTP {status}; check the credential")
        if error is None:
            return NotPossible("PROTOCOL_FAULT", f"{method}: HTTP {status}, and no answer in it")
        return NotPossible("PROTOCOL_REFUSED", f"{method}: HTTP {status}, error {error.code}: {error.message}")


def _modern_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    headers = {MCP_PROTOCOL_VERSION_HEADER: MODERN, MCP_METHOD_HEADER: method}
    if method == CALL:
        headers[MCP_NAME_HEADER] = encode_header_value(params["name"])
    return headers


def _version(meta: Any) -> str:
    """What a modern server says of itself with each result, or empty."""
    try:
        return Implementation.model_validate(meta[SERVER_INFO_META_KEY], by_name=False).version
    except (TypeError, KeyError, ValidationError):
        return ""
