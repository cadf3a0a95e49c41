"""One OPA, queried through a hardened opa-python-client (kblockd/policy/README.md#opa).

What is replaced: the session (no redirects, no proxies, no netrc, no cookies, a TLS context of our own, a cap on the
answer) and the retries (none). What is sent is the canonical input, byte for byte as it was digested. Of the client
only ``query_rule`` is used: its uploads, URLs and bulk questions rewrite policies or send the token elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from opa_client import AsyncOpaClient

from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure, entrypoints
from kblockd.policy.deciding.samples import SAMPLES
from kblockd.policy.opa import replies
from kblockd.policy.opa.access import Endpoint

MAX_ANSWER: Final = 1 << 20
_CONNECTIONS: Final = 128
_STOOD_STILL: Final = 1 / 16  # of the time for a question
_PARAMETERS: Final = {"provenance": "true", "strict-builtin-errors": "true"}


@contextlib.contextmanager
def deadline_failure(seconds: float) -> Iterator[None]:
    """Turns the end of an ``asyncio.timeout`` inside into POLICY_TIMEOUT."""
    try:
        yield
    except TimeoutError:
        raise PolicyFailure(Reason.POLICY_TIMEOUT, f"OPA did not answer within {seconds:g} s") from None


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, but a stalled loop runs its timers first, so data that arrived during the stall is read
    before the deadline applies."""
    loop = asyncio.get_running_loop()
    due, moment = loop.time() + seconds, seconds * _STOOD_STILL
    async with asyncio.timeout(None) as limit:

        def over() -> None:
            stood_still = loop.time() - due >= moment
            limit.reschedule(loop.time() + (moment if stood_still else 0.0))

        timer = loop.call_later(seconds, over)
        try:
            yield
        finally:
            timer.cancel()


class Opa:
    """Create and close it on the loop that uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = _Client(endpoint)
        self._asked = 0
        self._retired = False

    async def ask(self, entrypoint: str, document: bytes, revision: str, seconds: float) -> Mapping[str, Any]:
        """The reply of that revision; raises ``PolicyFailure``.

        ``seconds`` bound everything: the connection, the handshake, the question and the last byte of the answer.
        Whoever stops waiting closes the connection, which ends the evaluation in OPA.
        """
        status, body = await self._send(entrypoint, document, seconds)
        return replies.reply(status, body, revision)

    async def revision(self, seconds: float) -> str:
        """The revision that OPA serves; raises ``PolicyFailure`` while it serves none, or more than one."""
        status, body = await self._send(entrypoints.AUTHZ, SAMPLES[0], seconds)
        return replies.revision_of(replies.answer(status, body))

    async def close(self) -> None:
        """Closes every connection; open requests fail. Idempotent."""
        await self._client.close_connection()

    async def retire(self) -> None:
        """``close`` once open requests have ended; for an endpoint that was replaced."""
        self._retired = True
        if not self._asked:
            await self.close()

    async def _send(self, entrypoint: str, document: bytes, seconds: float) -> tuple[int, bytes]:
        if entrypoint not in entrypoints.ENTRYPOINTS:  # the client does not escape paths
            raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is not an entry point")
        package, _, rule = entrypoint.rpartition("/")
        self._asked += 1
        with deadline_failure(seconds):
            try:
                async with _within(seconds):
                    await self._client.open()
                    status, body = await self._client.query_rule(_Input(document), package, rule, _PARAMETERS)
            except TimeoutError:
                raise
            except Exception as error:  # whatever a client or a stranger's server brings: no decision
                raise PolicyFailure(Reason.POLICY_DOWN, f"OPA cannot be asked: {_why(error)}") from None
            finally:
                self._asked -= 1
                if self._retired:
                    await self.retire()
        return status, body


@dataclass(frozen=True, slots=True)
class _Input:
    """Already canonical."""

    text: bytes


@dataclass(frozen=True, slots=True)
class _Answer:
    """What ``query_rule`` takes for a response; whether the status is good is for ``replies`` to say."""

    status: int
    body: bytes

    def raise_for_status(self) -> None:
        """Never."""

    async def json(self) -> tuple[int, bytes]:
        """Unread."""
        return self.status, self.body


class _Client(AsyncOpaClient):  # type: ignore[misc]  # it has no types
    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(
            host=endpoint.host,
            port=endpoint.port,
            ssl=endpoint.tls is not None,
            token=endpoint.token or None,
            retries=0,
        )
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None
        self._ended = False

    async def open(self) -> None:
        """The session, made on the loop that asks."""
        if self._session is None and not self._ended:
            await self._init_session()

    async def close_connection(self) -> None:
        self._ended = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _init_session(self) -> None:
        endpoint = self._endpoint
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(endpoint.socket, limit=_CONNECTIONS)
            if endpoint.socket
            else aiohttp.TCPConnector(ssl=endpoint.tls or False, limit=_CONNECTIONS)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={**(self.headers or {}), "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            json_serialize=_serialize,
            timeout=aiohttp.ClientTimeout(total=None),
            trust_env=False,
            auto_decompress=False,
        )

    @contextlib.asynccontextmanager
    async def _request(self, method: str, url: str, **options: Any) -> AsyncIterator[_Answer]:
        if self._session is None:
            raise RuntimeError("closed")
        async with self._session.request(method, url, allow_redirects=False, **options) as response:
            yield _Answer(response.status, await _read(response))


def _serialize(value: Mapping[str, _Input]) -> str:
    return f'{{"input":{value["input"].text.decode()}}}'


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER:
            raise ValueError(f"an answer of more than {MAX_ANSWER} bytes")
        parts.append(part)
    return b"".join(parts)


def _why(error: Exception) -> str:
    """Our own wording: the client's message may contain addresses and text from the server."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return "the TLS handshake failed; compare ca_file, the client's certificate and OPA's name"
        case aiohttp.ClientConnectorError():
            return "no connection could be made"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | aiohttp.ClientPayloadError():
            return "the connection ended before the answer"
        case aiohttp.ClientError():
            return "the answer is not HTTP"
        case ValueError():
            return "the answer is too long, or not HTTP"
        case RuntimeError():
            return "its connections are closed"
    return "the connection failed"
