"""What both clients agree on about keys and repeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kblockd.client.answers import Answer, ApprovalPending
from kblockd.client.calls import Call
from kblockd.client.errors import CallError
from kblockd.domain.states import State

POLL_SECONDS: Final = 1.0


def keyed(call: Call, new_key: Callable[[], str]) -> Call:
    """The call under a key, so that an unknown outcome can be resumed (R672)."""
    return call if call.key is not None or call.keyless else call.with_key(new_key())


def call_of(what: Call | Answer | CallError) -> Call:
    """The call to repeat; raises ValueError where repeating could act twice."""
    call = what if isinstance(what, Call) else what.call
    if call is None:
        raise ValueError("there is no call to resume: it was a read")
    if call.key is None:
        raise ValueError("a call without a key cannot be resumed: a repeat could act twice; look it up with list")
    return call


def still_pending(answer: Answer) -> bool:
    """Whether nobody has decided yet. What is approved and not consumed is pending as an answer, but decided."""
    return isinstance(answer, ApprovalPending) and answer.state != State.APPROVED
