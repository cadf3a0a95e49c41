"""The steps around every call: admit, read, authorise, parse, call, translate errors, and never leave a caller hanging.

A call is admitted before its request is read from the wire, so a call beyond its principal's share costs neither memory
nor parsing (AGT-03, AGT-05). A handler that raises CancelledError although its RPC was not cancelled would leave the
client waiting for ever (RPC-02); here it becomes a status. At the stop, streams and waiting calls also end with a
status (LED-13); the executions that they waited for belong to the daemon and continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio

from kblockd.admission import Admission, on_behalf_of
from kblockd.admission.offload import offload
from kblockd.domain import canonical
from kblockd.domain.errors import InvalidArgument, KblockError, Reason, ResourceExhausted, Unavailable
from kblockd.domain.ids import Ids
from kblockd.domain.principal import Principal
from kblockd.domain.stages import Stage
from kblockd.rpc.convert import refuse_unknown
from kblockd.rpc.identity import Authorizer, Caller
from kblockd.rpc.status import DETAILS_KEY, code_of, to_status, translate
from kblockd.telemetry.tracing import Tracing

T = TypeVar("T")
Context = aio.ServicerContext[Any, Any]
Act = Callable[[Caller, Any], Awaitable[Message]]
Stream = Callable[[Caller, Any], AsyncIterator[Message]]
Plain = Callable[[Any, Context], Awaitable[Any]]
Bidirectional = Callable[[AsyncIterator[Any], Context], AsyncIterator[Message]]
Behaviour = Callable[[object, Context], Awaitable[bytes]]
StreamBehaviour = Callable[[object, Context], Awaitable[None]]

RETRY_AFTER_STOP: Final = 1.0
READ_SECONDS: Final = 10.0
"""Time for a request to arrive once its turn has come: a client that stalls in the middle delays its principal's other
calls by as much."""
LISTS: Final = frozenset({"List", "Read"})
"""Methods that read many rows: they count as streams."""
URGENT: Final = frozenset({"Decide", "Revoke", "Resolve"})
"""Methods that decide, stop or settle an action: they have their own share and queue."""
MAX_MESSAGE: Final = canonical.MAX_BYTES + (64 << 10)
"""Limit of a request in bytes: its JSON documents, which share one limit, plus all other fields at maximum length."""


class InFlight:
    """The running calls of all listeners; ``end`` makes them answer SHUTTING_DOWN at once."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: dict[asyncio.Task[Any], bool] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def entered(self, *, stream: bool) -> Iterator[None]:
        """Registers a call while it runs; raises ``Unavailable`` once the stop has begun."""
        if self.stopping:
            raise shutting_down()
        task = _current()
        self._running[task] = stream
        self._idle.clear()
        try:
            yield
        finally:
            del self._running[task]
            if not self._running:
                self._idle.set()

    def end(self, *, streams_only: bool) -> None:
        """Makes the calls answer now; the executions that they wait for are not affected."""
        for task, stream in list(self._running.items()):
            if (stream or not streams_only) and task not in self._ended:
                self._ended.add(task)
                task.cancel()

    def was_ended(self, task: asyncio.Task[Any]) -> bool:
        """Whether ``end`` cancelled the task; clears the mark."""
        if task not in self._ended:
            return False
        self._ended.discard(task)
        task.uncancel()
        return True

    async def idle(self) -> None:
        """Returns when no call is running."""
        await self._idle.wait()


@dataclass(frozen=True, slots=True)
class Calls:
    """Wraps the calls of one listener."""

    principal: Principal
    authorizer: Authorizer
    tracing: Tracing
    ids: Ids
    in_flight: InFlight
    admission: Admission

    def unary(self, method: str, request_type: type[Message], act: Act) -> Behaviour:
        """One request in, bytes out."""
        name = method.rpartition("/")[2]
        lists, urgent = name in LISTS, name in URGENT

        async def answer(context: Context) -> bytes:
            with ExitStack() as held:
                held.enter_context(self.in_flight.entered(stream=False))
                await self._admit(held, lists=lists, urgent=urgent)
                caller, request = await self._enter(held, method, request_type, context, urgent=urgent)
                data = (await act(caller, request)).SerializeToString()
                self.admission.answered(len(data))
                return data

        return self._settled(answer)

    def stream(self, method: str, request_type: type[Message], act: Stream) -> StreamBehaviour:
        """One request in, a stream of bytes out; the source is closed however the call ends (LED-14)."""

        async def answer(context: Context) -> None:
            with ExitStack() as held:
                held.enter_context(self.in_flight.entered(stream=True))
                await self._admit(held, lists=True)
                caller, request = await self._enter(held, method, request_type, context)
                await self._pump(act(caller, request), context)

        return self._settled(answer)

    def check(self, request_type: type[Message], act: Plain) -> Behaviour:
        """As ``unary``, for a service that gRPC provides: without the policy, but with the same shares, so that a flood
        of such calls cannot affect others (AGT-05)."""

        async def answer(context: Context) -> bytes:
            with ExitStack() as held:
                await self._admit(held, urgent=True)
                request = _parse(request_type, await self._read(held, context, urgent=True))
                message: Message = await act(request, context)
                return message.SerializeToString()

        return self._settled(answer)

    def watch(self, request_type: type[Message], act: Plain) -> StreamBehaviour:
        """As ``stream``, for a service that gRPC provides; ``act`` writes its answers itself."""

        async def answer(context: Context) -> None:
            with ExitStack() as held:
                held.enter_context(self.in_flight.entered(stream=True))
                await self._admit(held, lists=True)
                await act(_parse(request_type, await self._read(held, context)), context)

        return self._settled(answer)

    def bidirectional(self, request_type: type[Message], act: Bidirectional) -> StreamBehaviour:
        """A bidirectional stream of a service that gRPC provides. Each message counts as a call, and the number of open
        streams is limited to the number of concurrent reads, because messages can arrive at any time."""

        async def requests(context: Context) -> AsyncIterator[Message]:
            while isinstance(data := await context.read(), bytes):
                await self.admission.turn()
                self.admission.answered(len(data))
                yield _parse(request_type, data)

        async def answer(context: Context) -> None:
            with ExitStack() as held:
                held.enter_context(self.in_flight.entered(stream=True))
                await self._admit(held, lists=True)
                held.enter_context(self.admission.bidirectional())  # refused at once: who waits could go on sending
                await self._pump(act(requests(context), context), context)

        return self._settled(answer)

    def _settled(self, answer: Callable[[Context], Awaitable[T]]) -> Callable[[object, Context], Awaitable[T]]:
        """Wraps ``answer``: an exception that it raises ends the call with a status."""

        async def behaviour(_: object, context: Context) -> T:
            try:
                return await answer(context)
            except aio.AbortError:
                raise  # a service that gRPC provides has aborted the call itself
            except (Exception, asyncio.CancelledError) as error:
                refusal = self._refusal(error)
            # Abort outside the except block: gRPC keeps the exception that abort raises in a reference cycle with the
            # frames it passed and the exception being handled. If those held the request, refused requests would stay
            # in memory until the next full garbage collection (AGT-05).
            try:
                await context.abort(*refusal)
            finally:
                del context
            raise AssertionError("abort returned")

        return behaviour

    async def _admit(self, held: ExitStack, *, lists: bool = False, urgent: bool = False) -> None:
        """Waits for the call's turn; raises ``ResourceExhausted`` if the principal has used up its share. ``held``
        releases the share."""
        held.enter_context(on_behalf_of(self.principal.id))
        try:
            held.enter_context(self.admission.stream() if lists else self.admission.call(urgent=urgent))
        except ResourceExhausted:
            await self.admission.hold_back()
            raise
        await self.admission.turn(urgent=urgent)

    async def _enter(
        self, held: ExitStack, method: str, request_type: type[Message], context: Context, *, urgent: bool = False
    ) -> tuple[Caller, Message]:
        data = await self._read(held, context, urgent=urgent)
        trace = self.tracing.begin([(key, value) for key, value in context.invocation_metadata() or ()])
        self.tracing.admit(trace, self.principal.id)
        try:
            with trace.stage(Stage.AUTHENTICATE.order, Stage.AUTHENTICATE.label):
                view = await self.authorizer.authorize(self.principal, method)
        except KblockError:
            self.tracing.finish(trace)
            raise
        return Caller(self.principal, view, trace), await offload(len(data), _parse, request_type, data)

    async def _read(self, held: ExitStack, context: Context, *, urgent: bool = False) -> bytes:
        """Reads the call's request, taking turns with the principal's other calls. A request beyond the byte share
        keeps its turn until it is refused, because unread requests use no memory here. A long request waits before it
        is parsed, whichever service it is for."""
        async with self.admission.urgent_reading if urgent else self.admission.reading:
            data = await _received(context)
            try:
                held.enter_context(self.admission.holding(len(data)))
            except ResourceExhausted:
                del data
                await self.admission.hold_back()
                raise
        await self.admission.turn_of(len(data))
        return data

    async def _pump(self, source: AsyncIterator[Message], context: Context) -> None:
        try:
            async for message in source:
                data = message.SerializeToString()
                await context.write(data)
                self.admission.answered(len(data))
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    def _refusal(self, error: BaseException) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
        """The status that ends the call: code, message, trailers. A call cancelled by its client stays cancelled."""
        if isinstance(error, asyncio.CancelledError):
            task = _current()
            if self.in_flight.was_ended(task):
                error = shutting_down()
            elif task.cancelling():
                raise error
        known, correlation_id = translate(error, self.ids)
        status = to_status(known, correlation_id=correlation_id)
        return code_of(known), status.message, ((DETAILS_KEY, status.SerializeToString()),)


def shutting_down() -> Unavailable:
    """The error for calls at the stop. A waiting Execute's execution goes on in the daemon, and a repeat joins it."""
    return Unavailable(
        Reason.SHUTTING_DOWN,
        "the daemon is stopping",
        retryable=True,
        next_step="repeat the identical call, with the same caller key, when the daemon is back",
        retry_after_seconds=RETRY_AFTER_STOP,
    )


async def _received(context: Context) -> bytes:
    try:
        async with asyncio.timeout(READ_SECONDS):
            data = await context.read()
    except TimeoutError:
        raise InvalidArgument.field("request", f"did not arrive within {READ_SECONDS:g} s") from None
    if not isinstance(data, bytes):
        raise InvalidArgument.field("request", "is missing")
    return data


def _parse(request_type: type[Message], data: bytes) -> Message:
    """Refuses over-long requests without parsing, because protobuf uses ten bytes for each unknown one (AGT-02)."""
    if len(data) > MAX_MESSAGE:
        raise InvalidArgument.field("request", f"{len(data)} bytes exceed the limit of {MAX_MESSAGE}; send less")
    try:
        request = request_type.FromString(data)
    except DecodeError:
        raise InvalidArgument.field("request", f"is not a valid {request_type.DESCRIPTOR.full_name}") from None
    refuse_unknown(request)
    return request


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # grpc.aio runs every handler in a task
    return task
