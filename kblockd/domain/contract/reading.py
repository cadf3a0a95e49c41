"""What is read before and after the effect, and how an effect is looked up.

``numbers``: an answer with a number that no double holds exactly (an integer beyond 2^53-1, too many digits) cannot be
kept, and the read has failed. With ``text`` such numbers are kept as strings of their literal, and Rego sees those.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kblockd.domain.answer import Numbers
from kblockd.domain.contract.words import ADDED, JsonObject, Part, Pointer, SecondsOrZero, ToolName


class SnapshotRead(Part):
    """Stage 7: the authoritative read of the target. ``version`` points into the answer."""

    tool: ToolName
    kind: Literal["read"] = "read"
    arguments: JsonObject
    numbers: Annotated[Numbers, ADDED] = "refuse"
    version: Pointer | None = None


class VerifyRead(Part):
    """Stage 14: the independent read that shows the post-condition."""

    tool: ToolName
    kind: Literal["read"] = "read"
    arguments: JsonObject
    numbers: Annotated[Numbers, ADDED] = "refuse"


class Reads(Part):
    """Both may be null: a target that cannot be read has no version check, one that cannot be verified stays so."""

    snapshot: SnapshotRead | None
    verify: VerifyRead | None


class Lookup(Part):
    """Stage 13: does the effect exist? ``present`` points into the answer, at a boolean.

    Absent is proof only with ``consistent: strong`` and at least ``absent_final_after_seconds`` after the send
    marker; without the latter it never is.
    """

    by: Literal["effect_key", "operation"]
    tool: ToolName
    kind: Literal["read"] = "read"
    arguments: JsonObject
    numbers: Annotated[Numbers, ADDED] = "refuse"
    present: Annotated[Pointer, Field(min_length=1)]
    consistent: Literal["strong", "eventual"]
    absent_final_after_seconds: SecondsOrZero | None = None

    @property
    def proves_absence(self) -> bool:
        """Whether an absent answer can ever be proof."""
        return self.consistent == "strong" and self.absent_final_after_seconds is not None
