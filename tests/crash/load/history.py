"""What everybody outside of the daemon holds in hand at the end: answers, the provider's log, the exported ledger."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Given:
    """One answer or refusal as its caller got it; times are the wall clock's. ``kind`` is the client's class for it,
    ``executed`` is None where the daemon did not say."""

    order: str
    kind: str
    asked_at: float
    got_at: float
    execution: str = ""
    state: str = ""
    result_class: str = ""
    reason: str = ""
    detail: str = ""
    executed: bool | None = None
    refused: bool = False
    retryable: bool = False
    approval: str = ""
    action: str = ""
    result: bytes = b""
    receipt: bytes = b""
    proof: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One exported record: its place, its exact bytes, what stands in them, and the signed form beside it."""

    index: int
    data: bytes
    document: dict[str, Any]
    aux: bytes

    @property
    def type(self) -> str:
        """Its type; a receipt's leaf is its statement."""
        return str(self.document.get("type", "receipt"))

    @property
    def execution(self) -> str:
        """Whose it is, or nobody's."""
        found = self.document.get("execution") if "type" in self.document else self.document["predicate"]["executionId"]
        return str(found or "")

    @property
    def body(self) -> dict[str, Any]:
        """What it says; empty for a receipt."""
        found: dict[str, Any] = self.document.get("body", {})
        return found


@dataclass
class History:
    """``asked`` are the orders that somebody asked for. ``decided`` and ``resolved`` were acknowledged to approver and
    operator, as (identifier, word); ``seen`` are leaves that the ledger's service showed on the way; ``silent`` counts
    calls without any answer, by reason."""

    asked: set[str] = field(default_factory=set)
    given: list[Given] = field(default_factory=list)
    decided: list[tuple[str, str]] = field(default_factory=list)
    resolved: list[tuple[str, str]] = field(default_factory=list)
    seen: dict[int, bytes] = field(default_factory=dict)
    silent: Counter[str] = field(default_factory=Counter)
    log: list[dict[str, Any]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    root: bytes = b""
    keyset: bytes = b""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Refunds that the provider was asked for."""
        return [line for line in self.log if line["event"] == "call"]

    @property
    def effects(self) -> list[dict[str, Any]]:
        """Refunds that happened."""
        return [line for line in self.log if line["event"] == "effect"]


def read_export(file: Path) -> list[Leaf]:
    """The records of ``kblockd ledger export``; raises ValueError for one that the tree does not prove."""
    found = []
    with file.open("rb") as lines:
        for line in lines:
            row = json.loads(line)
            if row["condition"] != "proved":
                raise ValueError(f"record {row['index']} is {row['condition']}")
            data = base64.b64decode(row["leaf"])
            found.append(Leaf(row["index"], data, json.loads(data), base64.b64decode(row["aux"])))
    return found


_ENDS = ("receipt", "execution.rejected", "execution.expired", "execution.cancelled")


def interrupted(leaves: Sequence[Leaf]) -> Counter[str]:
    """Where the deaths hit: the last record of each execution that was open when a daemon started."""
    open_now: dict[str, str] = {}
    found: Counter[str] = Counter()
    for leaf in leaves:
        if leaf.type == "daemon.started":
            found.update(open_now.values())
        elif leaf.type in _ENDS:
            open_now.pop(leaf.execution, None)
        elif leaf.execution and leaf.type != "call.refused":
            open_now[leaf.execution] = leaf.type
    return found
