"""The stages by name. Spans, failpoints and commits are called by it; its order is what records and displays count by.

A stage that is added takes a new name and may share an order, as tracking does with reconciliation and a hold with the
seal: nothing that is stored or configured is renumbered. Source: kblockd/execution/README.md#stages.
"""

from __future__ import annotations

import enum
from typing import Final


class Stage(enum.Enum):
    """``name`` in lower case is the stage's, ``order`` its place in the pipeline."""

    AUTHENTICATE = "authenticate", 0
    ADMIT = "admit", 1
    REPLAY = "replay", 2
    DECIDE = "decide", 3
    AWAIT_APPROVAL = "await_approval", 4
    PREFLIGHT = "preflight", 5
    LEASE = "lease", 6
    READ = "read", 7
    PRECONDITIONS = "preconditions", 8
    CONSUME = "consume", 9
    MARK_SENT = "mark_sent", 10
    DISPATCH = "dispatch", 11
    CLASSIFY = "classify", 12
    RECONCILE = "reconcile", 13
    TRACK = "track", 13
    VERIFY = "verify", 14
    RECOVER = "recover", 15
    SEAL = "seal", 16
    HOLD = "hold", 16

    label: str
    order: int

    def __init__(self, label: str, order: int) -> None:
        self.label = label
        self.order = order


_BY_ORDER: Final = {stage.order: stage.label for stage in reversed(Stage)}


def named(order: int | None) -> str:
    """The stage of a record, as it is displayed: the first one of that order; "" outside the pipeline."""
    return "" if order is None else _BY_ORDER.get(order, "")
