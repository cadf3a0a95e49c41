"""``kblock.v1.ExecutionService``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from kblockd._proto.kblock.v1 import execution_service_pb2 as pb
from kblockd.admission.offload import offload
from kblockd.domain.errors import InvalidArgument
from kblockd.domain.states import State
from kblockd.rpc import answers, convert
from kblockd.rpc.identity import Caller
from kblockd.rpc.services.facades import ExecutionsApi

_STATES = frozenset(str(state) for state in State)


class ExecutionService:
    """``max_arguments``: limit in bytes of arguments, preconditions and postconditions together."""

    def __init__(self, executions: ExecutionsApi, *, max_arguments: int) -> None:
        self._executions = executions
        self._max_arguments = max_arguments

    async def Execute(
        self, caller: Caller, request: pb.ExecutionServiceExecuteRequest
    ) -> pb.ExecutionServiceExecuteResponse:
        """The run belongs to the daemon; cancelling this coroutine only stops the waiting."""
        if not request.HasField("envelope"):
            raise InvalidArgument.field("envelope", "is missing")
        convert_envelope = partial(convert.envelope, request.envelope, max_arguments=self._max_arguments)
        envelope = await offload(request.envelope.ByteSize(), convert_envelope)
        wait = convert.wait(request)
        outcome = await self._executions.execute(caller.principal, envelope, wait, caller.trace)
        answer = pb.ExecutionServiceExecuteResponse(outcome=answers.outcome(outcome))
        answers.fit(answer, answer.outcome)
        return answer

    async def Get(self, caller: Caller, request: pb.ExecutionServiceGetRequest) -> pb.ExecutionServiceGetResponse:
        """By id, or by caller key within the caller's own tenant and agent."""
        by = request.WhichOneof("by")
        if by is None:
            raise InvalidArgument.field("by", "give execution_id or caller_key")
        identifier = convert.identifier(by, request.execution_id if by == "execution_id" else request.caller_key)
        outcome, events = await self._executions.get(caller.view, caller.principal, **{by: identifier})
        answer = pb.ExecutionServiceGetResponse(outcome=answers.outcome(outcome), events=map(answers.event, events))
        answers.fit(answer, answer.outcome)
        return answer

    async def List(self, caller: Caller, request: pb.ExecutionServiceListRequest) -> pb.ExecutionServiceListResponse:
        """Newest first."""
        outcomes, token = await self._executions.list(
            caller.view,
            page_size=convert.page_size(request.page_size),
            page_token=convert.page_token(request.page_token),
            states=convert.states(request.states, _STATES),
        )
        return pb.ExecutionServiceListResponse(outcomes=map(answers.listed, outcomes), next_page_token=token)

    async def Watch(
        self, caller: Caller, request: pb.ExecutionServiceWatchRequest
    ) -> AsyncIterator[pb.ExecutionServiceWatchResponse]:
        """Each durable record after ``after_index``, until the execution is closed."""
        execution_id = convert.identifier("execution_id", request.execution_id)
        source = self._executions.watch(caller.view, execution_id, request.after_index)
        try:
            async for event in source:
                yield pb.ExecutionServiceWatchResponse(event=answers.event(event))
        finally:
            if (close := getattr(source, "aclose", None)) is not None:
                await close()

    async def Resolve(
        self, caller: Caller, request: pb.ExecutionServiceResolveRequest
    ) -> pb.ExecutionServiceResolveResponse:
        """Closes a held execution with an operator's finding."""
        outcome = await self._executions.resolve(
            caller.principal,
            caller.view,
            convert.identifier("execution_id", request.execution_id),
            convert.finding(request.finding),
            convert.reason("reason", request.reason, required=True),
        )
        answer = pb.ExecutionServiceResolveResponse(outcome=answers.outcome(outcome))
        answers.fit(answer, answer.outcome)
        return answer
