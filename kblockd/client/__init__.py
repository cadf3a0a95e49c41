"""The callers' library: ``AsyncClient`` and the blocking ``Client`` over a Unix socket or a loopback address.

::

    with Client("unix:/run/kblockd/agent.sock") as client:
        call = Call.of("payment.refund.create", "production", target="A-1", arguments={"order_id": "A-1", ...})
        try:
            answer = client.execute(call)
        except Unavailable as error:          # error.outcome_unknown: the daemon may have acted
            answer = client.resume(error)     # repeats exactly, with the same key
        if isinstance(answer, ApprovalPending):
            answer = client.wait_for_approval(answer, timeout_seconds=600)
        match answer:
            case Completed(): print(answer.output)
            case Denied() | UpstreamError() | InProgress() | Held(): print(answer.code, answer.detail)

    calls      the action to request, with the key that makes a repeat safe
    answers    the types of answers to a call
    errors     the types of refusals and lost answers
    rpcs       each RPC as a value: request, how to read the response, how long to wait; those of PolicyService, with
               their types, in policies
    asynchronous, blocking   the two clients; only I/O

May not live here: the server's side, retries that the caller did not request (RPC-06).
"""

from kblockd.client.answers import (
    Answer,
    ApprovalPending,
    Completed,
    ConsistencyProof,
    Denied,
    Held,
    InProgress,
    Leaves,
    Page,
    SignedDecision,
    SignedReceipt,
    Story,
    UpstreamError,
)
from kblockd.client.asynchronous import AsyncClient
from kblockd.client.blocking import Client
from kblockd.client.calls import Call
from kblockd.client.errors import (
    Aborted,
    AlreadyExists,
    ApprovalTimeout,
    CallError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from kblockd.client.policies import (
    PolicyActivation,
    PolicyAnswer,
    PolicyCandidate,
    PolicyDifference,
    PolicyExplanation,
    PolicyInForce,
    PolicyRule,
    PolicyRuling,
)

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Answer",
    "ApprovalPending",
    "ApprovalTimeout",
    "AsyncClient",
    "Call",
    "CallError",
    "Client",
    "Completed",
    "ConsistencyProof",
    "Denied",
    "FailedPrecondition",
    "Held",
    "InProgress",
    "Internal",
    "InvalidArgument",
    "Leaves",
    "NotFound",
    "Page",
    "PermissionDenied",
    "PolicyActivation",
    "PolicyAnswer",
    "PolicyCandidate",
    "PolicyDifference",
    "PolicyExplanation",
    "PolicyInForce",
    "PolicyRule",
    "PolicyRuling",
    "ResourceExhausted",
    "SignedDecision",
    "SignedReceipt",
    "Story",
    "Unauthenticated",
    "Unavailable",
    "UpstreamError",
]
