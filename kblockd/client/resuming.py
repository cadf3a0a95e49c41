"""Keys and repeats, shared by both clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kblockd.client.answers import Answer, ApprovalPending
from kblockd.client.calls import Call
from kblockd.client.errors import CallError
from kblockd.domain.states import State

POLL_SECONDS: Final = 1.0


def keyed(call: Call, new_key: Callable[[], str]) -> Call:
    """The call with a key, so that an unknown outcome can be resumed (R672)."""
    return call if call.key is not None or call.keyless else call.with_key(new_key())


def call_of(what: Call | Answer | CallError) -> Call:
    """The call to repeat; raises ValueError if repeating it could act twice."""
    call = what if isinstance(what, Call) else what.call
    if call is None:
        raise ValueError("there is no call to resume: it was a read")
    if call.key is None:
        raise ValueError("a call without a key cannot be resumed: a repeat could act twice; look it up with list")
    return call


def still_pending(answer: Answer) -> bool:
    """Whether the approval is undecided. An approved but not yet consumed action also answers ApprovalPending."""
    return isinstance(answer, ApprovalPending) and answer.state != State.APPROVED
