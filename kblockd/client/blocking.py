"""The client for threads: the same methods as ``AsyncClient``, blocking. Safe to share between threads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc

from kblockd.client import channel, exchanges, policies
from kblockd.client.answers import Answer, ConsistencyProof, Decided, Leaves, Page, Receipt, Story
from kblockd.client.calls import Call
from kblockd.client.errors import ApprovalTimeout, CallError, Unavailable, from_rpc
from kblockd.client.exchanges import Exchange
from kblockd.client.policies import PolicyAnswer, PolicyExplanation, PolicyInForce
from kblockd.client.resuming import POLL_SECONDS, call_of, keyed, still_pending
from kblockd.domain.outcome import ApprovalView, Finding, Revocation, StageEvent

T = TypeVar("T")


class Client:
    """See ``AsyncClient``."""

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
        self._channel = grpc.insecure_channel(target, options=channel.OPTIONS)
        self._wait, self._margin, self._poll = wait_seconds, margin_seconds, poll_seconds
        self._new_key = new_key

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; what the daemon executes goes on."""
        self._channel.close()

    def execute(self, call: Call) -> Answer:
        """Completed, UpstreamError, ApprovalPending, Denied, InProgress or Held. Never repeats by itself (R672)."""
        ready = keyed(call, self._new_key)
        wait = self._wait if ready.wait_seconds is None else ready.wait_seconds
        return self._run(exchanges.execute(ready, wait=wait, margin=self._margin))

    def resume(self, what: Call | Answer | CallError) -> Answer:
        """Repeats exactly, with the same key; raises ValueError where there is none (R672)."""
        return self.execute(call_of(what))

    def wait_for_approval(self, pending: Answer, timeout_seconds: float = 600.0) -> Answer:
        """Polls until it is decided, then repeats the identical call (R359, R361). Raises ``ApprovalTimeout``, which
        denies nothing (APR-06); a daemon that is away for a while is waited for."""
        call = call_of(pending)
        end = time.monotonic() + timeout_seconds
        while self._still_pending(pending.execution_id):
            left = end - time.monotonic()
            if left <= 0:
                raise ApprovalTimeout(pending)
            time.sleep(min(self._poll, left))
        return self.execute(call)

    def get(self, *, execution_id: str = "", caller_key: str = "") -> Story:
        """One execution with its events, by one of the two."""
        return self._run(exchanges.get(execution_id=execution_id, caller_key=caller_key))

    def list(self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = "") -> Page[Answer]:
        """Executions, newest first; without output and evidence."""
        return self._run(exchanges.list_executions(states, page_size, page_token))

    def watch(self, execution_id: str, after_index: int = 0) -> Iterator[StageEvent]:
        """Each durable record, until the execution is closed."""
        one = exchanges.watch(execution_id, after_index)
        behaviour: Any = self._channel.unary_stream(one.path, _serialize, one.response.FromString)
        stream = behaviour(one.request)
        try:
            for message in stream:
                yield one.read(message)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=False, call=None) from None
        finally:
            stream.cancel()

    def resolve(self, execution_id: str, finding: Finding, reason: str) -> Answer:
        """Closes a held execution by what an operator found."""
        return self._run(exchanges.resolve(execution_id, finding, reason))

    def approval(self, approval_id: str) -> ApprovalView:
        """Everything that an approver must read."""
        return self._run(exchanges.approval(approval_id))

    def approvals(self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = "") -> Page[ApprovalView]:
        """Newest first; without arguments and intent."""
        return self._run(exchanges.list_approvals(states, page_size, page_token))

    def decide(
        self, approval_id: str, *, action_sha256: str, presented_sha256: str, verdict: str, reason: str = ""
    ) -> Decided:
        """approve or deny what was shown under these digests."""
        return self._run(exchanges.decide(approval_id, action_sha256, presented_sha256, verdict, reason))

    def revoke(self, approval_id: str, reason: str) -> Revocation:
        """Takes it back, pending or approved, before its use: its action cannot run any more."""
        return self._run(exchanges.revoke(approval_id, reason))

    def read_ledger(self, from_index: int = 0, limit: int = 0, execution_id: str = "") -> Leaves:
        """Records in order."""
        return self._run(exchanges.read_ledger(from_index, limit, execution_id))

    def checkpoint(self) -> str:
        """The newest signed tree head."""
        return self._run(exchanges.checkpoint())

    def inclusion_proof(self, index: int, tree_size: int = 0) -> str:
        """A tlog-proof."""
        return self._run(exchanges.inclusion_proof(index, tree_size))

    def consistency_proof(self, old_size: int, new_size: int = 0) -> ConsistencyProof:
        """That the tree only grew."""
        return self._run(exchanges.consistency_proof(old_size, new_size))

    def receipt(self, execution_id: str) -> Receipt:
        """The receipt of a closed execution."""
        return self._run(exchanges.receipt(execution_id))

    def evaluate_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyAnswer:
        """What the policy in force answers, without consequence."""
        return self._run(policies.evaluate(entrypoint, document))

    def explain_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyExplanation:
        """The same, with the rules that fired."""
        return self._run(policies.explain(entrypoint, document))

    def policy_status(self) -> PolicyInForce:
        """Which revision decides, and since when."""
        return self._run(policies.status())

    def _still_pending(self, execution_id: str) -> bool:
        try:
            return still_pending(self.get(execution_id=execution_id).answer)
        except Unavailable:
            return True

    def _run(self, one: Exchange[T]) -> T:
        behaviour: Any = self._channel.unary_unary(one.path, _serialize, one.response.FromString)
        try:
            response = behaviour(one.request, timeout=one.timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=one.effect, call=one.call) from None
        return one.read(response)


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
