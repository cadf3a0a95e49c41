"""The client for asyncio. Every method raises ``CallError``; what is typed says the rest."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
from grpc import aio

from kblockd.client import channel, exchanges, policies
from kblockd.client.answers import Answer, ConsistencyProof, Decided, Leaves, Page, Receipt, Story
from kblockd.client.calls import Call
from kblockd.client.errors import ApprovalTimeout, CallError, Unavailable, from_rpc
from kblockd.client.exchanges import Exchange
from kblockd.client.policies import PolicyAnswer, PolicyExplanation, PolicyInForce
from kblockd.client.resuming import POLL_SECONDS, call_of, keyed, still_pending
from kblockd.domain.outcome import ApprovalView, Finding, Revocation, StageEvent

T = TypeVar("T")


class AsyncClient:
    """``target`` is ``unix:/path`` or ``host:port``. The daemon waits ``wait_seconds`` for the end of a call, this
    client ``margin_seconds`` longer (R184, R185). ``new_key`` mints caller keys."""

    def __init__(
        self,
        target: str,
        *,
        wait_seconds: float = channel.WAIT_SECONDS,
        margin_seconds: float = channel.MARGIN_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        new_key: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Raises ValueError for a target that is neither."""
        channel.check(target, wait_seconds, margin_seconds)
        self._channel = aio.insecure_channel(target, options=channel.OPTIONS)
        self._wait, self._margin, self._poll = wait_seconds, margin_seconds, poll_seconds
        self._new_key = new_key

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; what the daemon executes goes on."""
        await self._channel.close()

    async def execute(self, call: Call) -> Answer:
        """Completed, UpstreamError, ApprovalPending, Denied, InProgress or Held. Never repeats by itself (R672)."""
        ready = keyed(call, self._new_key)
        wait = self._wait if ready.wait_seconds is None else ready.wait_seconds
        return await self._run(exchanges.execute(ready, wait=wait, margin=self._margin))

    async def resume(self, what: Call | Answer | CallError) -> Answer:
        """Repeats exactly, with the same key; raises ValueError where there is none (R672)."""
        return await self.execute(call_of(what))

    async def wait_for_approval(self, pending: Answer, timeout_seconds: float = 600.0) -> Answer:
        """Polls until it is decided, then repeats the identical call (R359, R361). Raises ``ApprovalTimeout``, which
        denies nothing (APR-06); a daemon that is away for a while is waited for."""
        call = call_of(pending)
        end = time.monotonic() + timeout_seconds
        while await self._still_pending(pending.execution_id):
            left = end - time.monotonic()
            if left <= 0:
                raise ApprovalTimeout(pending)
            await asyncio.sleep(min(self._poll, left))
        return await self.execute(call)

    async def get(self, *, execution_id: str = "", caller_key: str = "") -> Story:
        """One execution with its events, by one of the two."""
        return await self._run(exchanges.get(execution_id=execution_id, caller_key=caller_key))

    async def list(self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = "") -> Page[Answer]:
        """Executions, newest first; without output and evidence."""
        return await self._run(exchanges.list_executions(states, page_size, page_token))

    async def watch(self, execution_id: str, after_index: int = 0) -> AsyncIterator[StageEvent]:
        """Each durable record, until the execution is closed."""
        one = exchanges.watch(execution_id, after_index)
        behaviour = self._channel.unary_stream(one.path, _serialize, one.response.FromString)
        stream = behaviour(one.request)
        try:
            async for message in stream:
                yield one.read(message)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=False, call=None) from None
        finally:
            stream.cancel()

    async def resolve(self, execution_id: str, finding: Finding, reason: str) -> Answer:
        """Closes a held execution by what an operator found."""
        return await self._run(exchanges.resolve(execution_id, finding, reason))

    async def approval(self, approval_id: str) -> ApprovalView:
        """Everything that an approver must read."""
        return await self._run(exchanges.approval(approval_id))

    async def approvals(
        self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = ""
    ) -> Page[ApprovalView]:
        """Newest first; without arguments and intent."""
        return await self._run(exchanges.list_approvals(states, page_size, page_token))

    async def decide(
        self, approval_id: str, *, action_sha256: str, presented_sha256: str, verdict: str, reason: str = ""
    ) -> Decided:
        """approve or deny what was shown under these digests."""
        return await self._run(exchanges.decide(approval_id, action_sha256, presented_sha256, verdict, reason))

    async def revoke(self, approval_id: str, reason: str) -> Revocation:
        """Takes it back, pending or approved, before its use: its action cannot run any more."""
        return await self._run(exchanges.revoke(approval_id, reason))

    async def read_ledger(self, from_index: int = 0, limit: int = 0, execution_id: str = "") -> Leaves:
        """Records in order."""
        return await self._run(exchanges.read_ledger(from_index, limit, execution_id))

    async def checkpoint(self) -> str:
        """The newest signed tree head."""
        return await self._run(exchanges.checkpoint())

    async def inclusion_proof(self, index: int, tree_size: int = 0) -> str:
        """A tlog-proof."""
        return await self._run(exchanges.inclusion_proof(index, tree_size))

    async def consistency_proof(self, old_size: int, new_size: int = 0) -> ConsistencyProof:
        """That the tree only grew."""
        return await self._run(exchanges.consistency_proof(old_size, new_size))

    async def receipt(self, execution_id: str) -> Receipt:
        """The receipt of a closed execution."""
        return await self._run(exchanges.receipt(execution_id))

    async def evaluate_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyAnswer:
        """What the policy in force answers, without consequence."""
        return await self._run(policies.evaluate(entrypoint, document))

    async def explain_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyExplanation:
        """The same, with the rules that fired."""
        return await self._run(policies.explain(entrypoint, document))

    async def policy_status(self) -> PolicyInForce:
        """Which revision decides, and since when."""
        return await self._run(policies.status())

    async def _still_pending(self, execution_id: str) -> bool:
        try:
            return still_pending((await self.get(execution_id=execution_id)).answer)
        except Unavailable:
            return True

    async def _run(self, one: Exchange[T]) -> T:
        behaviour: Any = self._channel.unary_unary(one.path, _serialize, one.response.FromString)
        try:
            response = await behaviour(one.request, timeout=one.timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=one.effect, call=one.call) from None
        return one.read(response)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
