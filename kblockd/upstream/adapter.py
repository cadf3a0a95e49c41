"""Plugin API. An entry point of group kblockd.adapters names a module-level AdapterPlugin.

This module and ``kblockd.domain`` are all that a plugin may import of kblockd. Changing a field or a meaning here
raises ``API_VERSION``; the catalog refuses plugins of any other version.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from kblockd.domain.answer import Numbers, Unreadable

API_VERSION = 2
Json = Any


class Sent(enum.Enum):
    """What is known of the call after the exchange; in doubt ``LOST``.

    There is no word for "refused". What an answer says about itself proves nothing, so a plugin reports it in ``Facts``
    and the core compares these with the contract's ``tool.errors`` (kblockd.execution.absence).
    """

    NOT_SENT = "not_sent"  # proved: no byte of the call left the process
    ANSWERED = "answered"  # complete answer, is_error may be true
    ACCEPTED = "accepted"  # operation is set
    LOST = "lost"  # everything else


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one tool, with everything that the adapter may send."""

    tool: str  # the upstream's own name of the tool, case-sensitive
    arguments: Mapping[str, Json]  # canonical form parsed again; sent as they are, never completed or reordered
    effect_key: str  # "" for reads; the same for every attempt of one execution
    effect_key_in: Literal["argument", "meta", "header", "none"]  # where the contract wants the effect key
    effect_key_name: str  # name of that argument, _meta key or header; "" when effect_key_in is none
    deadline: float  # monotonic seconds, for the whole exchange: connecting, handshakes and the answer
    credential: bytes | None = field(repr=False)  # Authorization header value; never logged, kept or answered
    trace: Mapping[str, str]  # traceparent, tracestate: outgoing W3C trace context, never baggage
    numbers: Numbers = "refuse"  # text: numbers of the answer that no double holds exactly become their literal


@dataclass(frozen=True, slots=True)
class Facts:
    """What the protocol says of an answer, unjudged. The defaults say nothing, and then the answer proves nothing.

    Only an error answer that has all of ``answers_request``, ``form`` and ``status`` can be the tool's own.
    """

    answers_request: bool = False  # it belongs to this very request: on its connection, under its JSON-RPC id
    form: Literal["", "body", "tool_result", "rpc_error"] = ""  # where ``output`` comes from: tool.errors.in
    status: int | None = None  # of HTTP
    media_type: str = ""  # lower case, without parameters
    rpc_code: int | None = None  # of a JSON-RPC error
    at_work: bool = False  # it says that the work goes on although it names nothing to ask for: 202, an unclaimed task


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call. The wrapper scrubs, bounds and checks every field before anybody else sees it."""

    sent: Sent  # what is known of the call
    output: Json = None  # the tool's answer as JSON, of an error its body or error object; None without one
    is_error: bool = False  # the upstream called its own answer an error; proves nothing about the effect
    operation: str | None = None  # the upstream's identifier of work that goes on; required for ACCEPTED
    code: str = ""  # stable upper-case word, for the ledger; detail goes to a payload, at most 2 KiB
    detail: str = ""  # one sentence for a person: what was seen; cut at 2 KiB
    raw_sha256: str = ""  # lowercase hex over the body as it came, where output is not the whole of it
    request_ids: Mapping[str, str] = field(default_factory=dict)  # identifiers that the upstream knows, by name (R202)
    facts: Facts = Facts()  # what the protocol says of the answer
    unreadable: Unreadable | None = None  # the answer is whole, but this in it cannot be kept; output is None then


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """What a person reviews and pins."""

    name: str  # the tool
    server_version: str  # self-reported by the upstream, or ""; never a security input
    definition: Json  # the whole definition; the daemon hashes its JCS and compares with the pin


class AdapterFault(Exception):
    """Only from ``describe`` (which has no effect): no definition could be read. ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: its headers with lower-case names, its body decoded."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class Exchange(Protocol):
    """One HTTP exchange over the guarded transport, shared by all HTTP adapters and owned by the daemon.

    ``send`` is one request and its whole answer; ``transport``, an ``httpx2.AsyncBaseTransport``, is for stacks that
    bring their own client. Both connect through the address guard and only to the origin of the upstream, use the
    upstream's TLS context, follow no redirect, honour no proxy or netrc, decode and cap all answers together at
    ``max_response_bytes``, end at ``deadline`` (time-outs of a client are ignored), and add the Authorization header
    of the identity that is calling to requests that have none (``describe`` has no ``Call``). Their errors are
    ``httpx2.TransportError``. A connection may have carried an earlier call to the same upstream.
    """

    transport: Any

    async def send(self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], content: bytes) -> Reply:
        """To ``target`` (path and query) of the origin; raises as ``transport`` does.

        Host, Content-Length, Accept-Encoding and Authorization are added.
        """
        ...

    @property
    def bytes_written(self) -> int:
        """Bytes handed to the kernel for requests since the exchange or the last ``mark``."""
        ...

    def mark(self) -> None:
        """Says that the next request is the one that matters, and that all before it were preliminaries.

        A plugin marks just before that request, and when it gives up before it. An exchange without a mark proves
        nothing: NOT_SENT is overruled and becomes LOST if an exchange was taken and never marked, if bytes were written
        after the mark, or if a raw connection was used. A plugin that raises or is too slow counts as not sent only if
        it asked for the marked request and not a byte was written (UPS-09).
        """
        ...

    @property
    def tampered(self) -> str:
        """Why the guard cut the exchange, or empty; the first reason stays.

        ADDRESS_REFUSED, ORIGIN_REFUSED, TLS_PIN_MISMATCH, REDIRECT_REFUSED, UPGRADE_REFUSED, RESPONSE_TOO_LARGE,
        CONTENT_ENCODING_REFUSED, CONTENT_ENCODING_BROKEN, UPSTREAM_TIMEOUT, LEASE_ENDED, EXCHANGE_CLOSED.
        """
        ...

    async def close(self) -> None:
        """Closes the connections of this exchange."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """What an adapter gets when it is opened; it is valid until the adapter is closed."""

    upstream: str  # the configured name, for messages
    url: str  # the configured URL
    settings: Json  # already validated by plugin.settings_model
    ssl: Any  # one SSLContext an upstream, made once; None for http
    # Address guard: resolves, checks, connects to what it checked; (host, port, monotonic deadline) to a plain
    # ``kblockd.upstream.wire.Wire``.
    connect: Callable[[str, int, float], Awaitable[Any]]
    max_response_bytes: int  # decoded bytes of all answers of one exchange
    # A fresh guarded exchange that ends at a monotonic deadline, at the call's own deadline at the latest. Made in the
    # task that runs the method (or one of its children) it takes part in this call's proof that nothing was sent.
    exchange: Callable[[float], Exchange]


class Adapter(Protocol):
    """Methods return and never raise; the wrapper in kblockd.upstream holds deadline, size cap and scrubbing anyway.

    `invoke` runs in a task of its own: when its deadline passes, the wrapper answers LOST and keeps the task for a
    while, so that a late Outcome still reaches the ledger as evidence. Plugins that need threads bring them, and
    `invoke` must not end before whatever it has started: from its end the core counts until an absence is final. One
    that has to be cancelled is never known to have ended, and its outcome is held for an operator (UPS-08).
    Nothing may be sent twice: a lost answer is LOST, not a reason to repeat.
    """

    async def describe(self, tool: str) -> ToolDescription:
        """The definition as the upstream serves it now, not cached; raises ``AdapterFault``."""
        ...

    async def read(self, call: Call) -> Outcome:
        """A read without effect."""
        ...

    async def invoke(self, call: Call) -> Outcome:
        """The one side effect: at most one request that carries the call leaves the process."""
        ...

    async def lookup(self, call: Call) -> Outcome:
        """Asks a read tool for traces of an earlier call."""
        ...

    async def poll(self, operation: str, call: Call) -> Outcome:
        """The state of accepted work: ACCEPTED while it goes on, ANSWERED at its end."""
        ...

    async def cancel(self, operation: str, call: Call) -> Outcome:
        """Asks the upstream to stop accepted work; proves nothing about the effect."""
        ...

    async def close(self) -> None:
        """Gives back what ``open`` took."""
        ...


class AdapterPlugin(Protocol):
    """One an adapter name."""

    api_version: Literal[2]  # the API_VERSION that the plugin was written for
    settings_model: type[Any]  # a frozen pydantic model that forbids unknown keys

    def open(self, context: AdapterContext) -> Adapter:
        """Makes the adapter of one upstream; no I/O yet."""
        ...
