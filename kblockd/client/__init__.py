"""The callers' library: ``AsyncClient`` and the blocking ``Client`` over a Unix socket or a loopback address.

::

    with Client("unix:/run/kblockd/agent.sock") as client:
        call = Call.of("payment.refund.create", "production", target="A-1", arguments={"order_id": "A-1", ...})
        try:
            answer = client.execute(call)
        except UnavailableError as error:     # error.outcome_unknown: the daemon may have acted
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
    AbortedError,
    AlreadyExistsError,
    ApprovalTimeout,
    CallError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
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
    "AbortedError",
    "AlreadyExistsError",
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
    "FailedPreconditionError",
    "Held",
    "InProgress",
    "InternalError",
    "InvalidArgumentError",
    "Leaves",
    "NotFoundError",
    "Page",
    "PermissionDeniedError",
    "PolicyActivation",
    "PolicyAnswer",
    "PolicyCandidate",
    "PolicyDifference",
    "PolicyExplanation",
    "PolicyInForce",
    "PolicyRule",
    "PolicyRuling",
    "ResourceExhaustedError",
    "SignedDecision",
    "SignedReceipt",
    "Story",
    "UnauthenticatedError",
    "UnavailableError",
    "UpstreamError",
]
