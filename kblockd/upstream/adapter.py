"""Plugin API. An entry point of group kblockd.adapters names a module-level AdapterPlugin.

A plugin may import only this module and ``kblockd.domain``. Changing a field or its meaning here raises
``API_VERSION``; the catalog refuses plugins of any other version.
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
    """What is known about the call after the exchange; when in doubt, ``LOST``.

    There is deliberately no "refused": an answer's claim about itself proves nothing. A plugin reports it in ``Facts``,
    and the core compares those with the contract's ``tool.errors`` (kblockd.execution.absence).
    """

    NOT_SENT = "not_sent"  # proved: no byte of the call left the process
    ANSWERED = "answered"  # complete answer, is_error may be true
    ACCEPTED = "accepted"  # operation is set
    LOST = "lost"  # everything else


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one tool, with everything that the adapter may send."""

    tool: str  # the upstream's own name for the tool, case-sensitive
    arguments: Mapping[str, Json]  # parsed from the canonical form; sent unchanged, never completed or reordered
    effect_key: str  # "" for reads; the same for every attempt of one execution
    effect_key_in: Literal["argument", "meta", "header", "none"]  # where the contract wants the effect key
    effect_key_name: str  # name of that argument, _meta key or header; "" when effect_key_in is none
    deadline: float  # monotonic seconds, for the whole exchange: connecting, handshakes and the answer
    credential: bytes | None = field(repr=False)  # Authorization header value; never log, store or return it
    trace: Mapping[str, str]  # traceparent, tracestate: outgoing W3C trace context, never baggage
    numbers: Numbers = "refuse"  # "text": a number in the answer that no double holds exactly becomes its literal


@dataclass(frozen=True, slots=True)
class Facts:
    """Protocol facts about an answer, without judgement. With the defaults the answer proves nothing.

    Only an error answer with ``answers_request``, ``form`` and ``status`` all set can be the tool's own.
    """

    answers_request: bool = False  # the answer is to this request: on its connection, under its JSON-RPC id
    form: Literal["", "body", "tool_result", "rpc_error"] = ""  # where ``output`` comes from: tool.errors.in
    status: int | None = None  # HTTP status
    media_type: str = ""  # lower case, without parameters
    rpc_code: int | None = None  # JSON-RPC error code
    at_work: bool = False  # work continues but the answer names no operation to poll: 202, an unclaimed task


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call. The wrapper scrubs, bounds and checks every field before anybody else sees it."""

    sent: Sent  # what is known about the call
    output: Json = None  # the tool's answer as JSON; for an error its body or error object; None without one
    is_error: bool = False  # the upstream marked its answer as an error; proves nothing about the effect
    operation: str | None = None  # the upstream's identifier for work in progress; required for ACCEPTED
    code: str = ""  # stable upper-case word, for the ledger; detail goes to a payload, at most 2 KiB
    detail: str = ""  # one sentence for a person describing the answer; cut at 2 KiB
    raw_sha256: str = ""  # lowercase hex over the raw body, where output is not all of it
    request_ids: Mapping[str, str] = field(default_factory=dict)  # identifiers that the upstream knows, by name (R202)
    facts: Facts = Facts()  # protocol facts about the answer
    unreadable: Unreadable | None = None  # the answer is complete, but this part cannot be stored; output is None then


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool's definition as a person reviews and pins it."""

    name: str  # the tool
    server_version: str  # self-reported by the upstream, or ""; never a security input
    definition: Json  # the whole definition; the daemon hashes its JCS and compares it with the pin


class AdapterFault(Exception):
    """``describe`` (which has no effect) could not read the definition. ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer: headers with lower-case names, body decoded."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class Exchange(Protocol):
    """One HTTP exchange over the guarded transport, shared by all HTTP adapters and owned by the daemon.

    ``send`` makes one request and returns its complete answer; ``transport``, an ``httpx2.AsyncBaseTransport``, is for
    stacks with their own client. Both connect through the address guard and only to the upstream's origin, use the
    upstream's TLS context, follow no redirect, ignore proxies and netrc, decode all answers and cap them together at
    ``max_response_bytes``, end at ``deadline`` (a client's time-outs are ignored), and add the Authorization header of
    the calling identity to requests that have none (``describe`` has no ``ToolCall``). They raise
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
        """Declares that the next request carries the call and that all earlier ones were preliminaries.

        A plugin marks just before that request, or when it gives up before making it. An exchange without a mark proves
        nothing: NOT_SENT is overruled and becomes LOST if an exchange was created and never marked, if bytes were
        written after the mark, or if a raw connection was used. A plugin that raises or is too slow counts as not sent
        only if it began the marked request and no byte was written (UPS-09).
        """
        ...

    @property
    def tampered(self) -> str:
        """Why the guard cut the exchange, or empty; the first reason is final.

        ADDRESS_REFUSED, ORIGIN_REFUSED, TLS_PIN_MISMATCH, REDIRECT_REFUSED, UPGRADE_REFUSED, RESPONSE_TOO_LARGE,
        CONTENT_ENCODING_REFUSED, CONTENT_ENCODING_BROKEN, UPSTREAM_TIMEOUT, LEASE_ENDED, EXCHANGE_CLOSED.
        """
        ...

    async def close(self) -> None:
        """Closes the connections of this exchange."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterContext:
    """Passed to ``open``; valid until the adapter is closed."""

    upstream: str  # the configured name, for messages
    url: str  # the configured URL
    settings: Json  # already validated by plugin.settings_model
    ssl: Any  # one SSLContext per upstream; None for http
    # Connects through the address guard: (host, port, monotonic deadline) to a plain ``kblockd.upstream.wire.Wire``.
    connect: Callable[[str, int, float], Awaitable[Any]]
    max_response_bytes: int  # decoded bytes of all answers of one exchange
    # Creates a guarded exchange that ends at a monotonic deadline, at the latest at the call's own. Created in the task
    # that runs the method (or one of its children), it takes part in the call's proof that nothing was sent.
    exchange: Callable[[float], Exchange]


class Adapter(Protocol):
    """Methods should return and not raise; the wrapper enforces deadline, size cap and scrubbing either way.

    ``invoke`` runs in its own task: when the deadline passes, the wrapper returns LOST and keeps the task for a while,
    so that a late Outcome still reaches the ledger as evidence. Plugins that need threads bring their own, and
    ``invoke`` must not end before everything it started: the core counts the time to finality from its end. A task that
    had to be cancelled is never known to have ended, and its outcome is held for an operator (UPS-08).
    Never send a call twice: a lost answer is LOST, not a reason to repeat.
    """

    async def describe(self, tool: str) -> ToolDescription:
        """The definition that the upstream serves now, uncached; raises ``AdapterFault``."""
        ...

    async def read(self, call: ToolCall) -> Outcome:
        """A read without effect."""
        ...

    async def invoke(self, call: ToolCall) -> Outcome:
        """The side effect: at most one request carrying the call leaves the process."""
        ...

    async def lookup(self, call: ToolCall) -> Outcome:
        """Asks a read tool for traces of an earlier call's effect."""
        ...

    async def poll(self, operation: str, call: ToolCall) -> Outcome:
        """The state of accepted work: ACCEPTED while it continues, ANSWERED when it has ended."""
        ...

    async def cancel(self, operation: str, call: ToolCall) -> Outcome:
        """Asks the upstream to stop accepted work; proves nothing about the effect."""
        ...

    async def close(self) -> None:
        """Releases what ``open`` acquired."""
        ...


class AdapterPlugin(Protocol):
    """One per adapter name."""

    api_version: Literal[2]  # the API_VERSION that the plugin was written for
    settings_model: type[Any]  # a frozen pydantic model that forbids unknown keys

    def open(self, context: AdapterContext) -> Adapter:
        """Creates the adapter of one upstream; no I/O yet."""
        ...
