"""The client for threads: the same methods as ``AsyncClient``, blocking. Safe to share between threads."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc

from kblockd.client import channel, policies, rpcs
from kblockd.client.answers import Answer, ConsistencyProof, Leaves, Page, SignedDecision, SignedReceipt, Story
from kblockd.client.calls import Call
from kblockd.client.errors import ApprovalTimeout, CallError, UnavailableError, from_rpc
from kblockd.client.policies import PolicyAnswer, PolicyCandidate, PolicyExplanation, PolicyInForce
from kblockd.client.resuming import POLL_SECONDS, call_of, keyed, still_pending
from kblockd.client.rpcs import Rpc
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
        """Closes the connection; executions in the daemon continue."""
        self._channel.close()

    def execute(self, call: Call) -> Answer:
        """Completed, UpstreamError, ApprovalPending, Denied, InProgress or Held. Never repeats by itself (R672)."""
        ready = keyed(call, self._new_key)
        wait = self._wait if ready.wait_seconds is None else ready.wait_seconds
        return self._run(rpcs.execute(ready, wait=wait, margin=self._margin))

    def resume(self, what: Call | Answer | CallError) -> Answer:
        """Repeats the call exactly, with the same key; raises ValueError if there is no key (R672)."""
        return self.execute(call_of(what))

    def wait_for_approval(self, pending: Answer, timeout_seconds: float = 600.0) -> Answer:
        """Polls until the approval is decided, then repeats the identical call (R359, R361). Tolerates a daemon that is
        temporarily unavailable. Raises ``ApprovalTimeout``, which does not deny the approval (APR-06)."""
        call = call_of(pending)
        end = time.monotonic() + timeout_seconds
        while self._still_pending(pending.execution_id):
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise ApprovalTimeout(pending)
            time.sleep(min(self._poll, remaining))
        return self.execute(call)

    def get(self, *, execution_id: str = "", caller_key: str = "") -> Story:
        """One execution with its events, by exactly one of the two."""
        return self._run(rpcs.get(execution_id=execution_id, caller_key=caller_key))

    def list(self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = "") -> Page[Answer]:
        """Executions, newest first; without output and evidence."""
        return self._run(rpcs.list_executions(states, page_size, page_token))

    def watch(self, execution_id: str, after_index: int = 0) -> Iterator[StageEvent]:
        """Each durable record, until the execution is closed."""
        rpc = rpcs.watch(execution_id, after_index)
        behaviour: Any = self._channel.unary_stream(rpc.path, channel.serialize, rpc.response.FromString)
        stream = behaviour(rpc.request)
        try:
            for message in stream:
                yield rpc.read(message)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=False, call=None) from None
        finally:
            stream.cancel()

    def resolve(self, execution_id: str, finding: Finding, reason: str) -> Answer:
        """Closes a held execution with an operator's finding."""
        return self._run(rpcs.resolve(execution_id, finding, reason))

    def approval(self, approval_id: str) -> ApprovalView:
        """Everything that an approver must read."""
        return self._run(rpcs.approval(approval_id))

    def approvals(self, states: Sequence[str] = (), *, page_size: int = 0, page_token: str = "") -> Page[ApprovalView]:
        """Newest first; without arguments and intent."""
        return self._run(rpcs.list_approvals(states, page_size, page_token))

    def decide(
        self, approval_id: str, *, action_sha256: str, presented_sha256: str, verdict: str, reason: str = ""
    ) -> SignedDecision:
        """Approves or denies the action shown under these digests."""
        return self._run(rpcs.decide(approval_id, action_sha256, presented_sha256, verdict, reason))

    def revoke(self, approval_id: str, reason: str) -> Revocation:
        """Revokes a pending or approved approval before its use: its action can no longer run."""
        return self._run(rpcs.revoke(approval_id, reason))

    def read_ledger(self, from_index: int = 0, limit: int = 0, execution_id: str = "") -> Leaves:
        """Records in order."""
        return self._run(rpcs.read_ledger(from_index, limit, execution_id))

    def checkpoint(self) -> str:
        """The newest signed tree head."""
        return self._run(rpcs.checkpoint())

    def inclusion_proof(self, index: int, tree_size: int = 0) -> str:
        """A tlog-proof."""
        return self._run(rpcs.inclusion_proof(index, tree_size))

    def consistency_proof(self, old_size: int, new_size: int = 0) -> ConsistencyProof:
        """The proof that the tree was only appended to."""
        return self._run(rpcs.consistency_proof(old_size, new_size))

    def receipt(self, execution_id: str) -> SignedReceipt:
        """The receipt of a closed execution."""
        return self._run(rpcs.receipt(execution_id))

    def evaluate_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyAnswer:
        """The answer of the policy in force, without consequences."""
        return self._run(policies.evaluate(entrypoint, document))

    def explain_policy(self, entrypoint: str, document: Mapping[str, Any]) -> PolicyExplanation:
        """The same answer, with the rules that fired."""
        return self._run(policies.explain(entrypoint, document))

    def policy_status(self) -> PolicyInForce:
        """The revision in force, and since when."""
        return self._run(policies.status())

    def set_policy_candidate(self, archive: bytes) -> PolicyCandidate:
        """Sets a revision (a ``.tar.gz``) that is asked every question beside the one in force, and changes nothing."""
        return self._run(policies.set_candidate(archive))

    def policy_candidate(self) -> PolicyCandidate | None:
        """The comparison so far; None without a candidate."""
        return self._run(policies.candidate())

    def clear_policy_candidate(self) -> PolicyCandidate | None:
        """Ends the comparison; its final counts, or None without a candidate."""
        return self._run(policies.clear_candidate())

    def _still_pending(self, execution_id: str) -> bool:
        try:
            return still_pending(self.get(execution_id=execution_id).answer)
        except UnavailableError:
            return True

    def _run(self, rpc: Rpc[T]) -> T:
        behaviour: Any = self._channel.unary_unary(rpc.path, channel.serialize, rpc.response.FromString)
        try:
            response = behaviour(rpc.request, timeout=rpc.timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, effect=rpc.effect, call=rpc.call) from None
        return rpc.read(response)
