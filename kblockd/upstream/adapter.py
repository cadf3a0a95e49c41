"""Plugin API. An entry point of group kblockd.adapters names a module-level AdapterPlugin."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

API_VERSION = 1
Json = Any


class Sent(enum.Enum):
    NOT_SENT = "not_sent"  # proved: no byte of the call left the process
    REJECTED = "rejected"  # the upstream says that it did not run it
    ANSWERED = "answered"  # complete answer, is_error may be true
    ACCEPTED = "accepted"  # operation is set
    LOST = "lost"  # everything else


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: Mapping[str, Json]  # canonical form parsed again
    effect_key: str  # "" for reads
    effect_key_in: Literal["argument", "meta", "header", "none"]
    effect_key_name: str
    deadline: float  # monotonic seconds, for the whole exchange
    credential: bytes | None  # Authorization header value; never logged
    trace: Mapping[str, str]  # traceparent, tracestate


@dataclass(frozen=True, slots=True)
class Outcome:
    sent: Sent
    output: Json = None
    is_error: bool = False
    operation: str | None = None
    code: str = ""  # stable upper-case word, for the ledger; detail goes to a payload, at most 2 KiB
    detail: str = ""
    raw_sha256: str = ""
    request_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolDescription:
    name: str
    server_version: str
    definition: Json  # the whole definition; the daemon hashes its JCS and compares with the pin


class AdapterFault(Exception):
    """Only from ``describe`` (which has no effect): the definition could not be read. ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Exchange(Protocol):
    """One HTTP exchange over the guarded transport, shared by all HTTP adapters and owned by the daemon.

    ``transport`` is an ``httpx2.AsyncBaseTransport``: it connects through the address guard, uses the upstream's
    TLS context, follows no redirect, honours no proxy or netrc, caps decoded bytes, ends at ``deadline``.
    """

    transport: Any

    @property
    def bytes_written(self) -> int:
        """Bytes handed to the kernel for requests since the exchange or the last ``mark``; 0 proves not sent."""
        ...

    def mark(self) -> None:
        """Starts counting anew: call it just before the request that matters."""
        ...

    @property
    def tampered(self) -> str:
        """Why the guard cut the exchange (a code such as RESPONSE_TOO_LARGE), or empty."""
        ...

    async def close(self) -> None:
        """Closes the connections of this exchange."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterContext:
    upstream: str
    url: str
    settings: Json  # already validated by plugin.settings_model
    ssl: Any  # one SSLContext an upstream, made once
    connect: Callable[[str, int, float], Awaitable[Any]]  # address guard: resolves, checks, connects to what it checked
    max_response_bytes: int
    exchange: Callable[[float], Exchange]  # a fresh guarded exchange that ends at a monotonic deadline


class Adapter(Protocol):
    """Methods return and never raise; the wrapper in kblockd.upstream holds deadline, size cap and scrubbing anyway.

    `invoke` runs in a task of its own: when its deadline passes, the wrapper answers LOST and keeps the task for a
    while, so that a late Outcome still reaches the ledger as evidence. Plugins that need threads bring them.
    """

    async def describe(self, tool: str) -> ToolDescription: ...
    async def read(self, call: Call) -> Outcome: ...
    async def invoke(self, call: Call) -> Outcome: ...
    async def lookup(self, call: Call) -> Outcome: ...
    async def poll(self, operation: str, call: Call) -> Outcome: ...
    async def cancel(self, operation: str, call: Call) -> Outcome: ...
    async def close(self) -> None: ...


class AdapterPlugin(Protocol):
    api_version: Literal[1]
    settings_model: type[Any]

    def open(self, context: AdapterContext) -> Adapter: ...
