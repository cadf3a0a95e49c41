"""What an upstream of this kind may set in its YAML."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"


class McpSettings(BaseModel):
    """``protocol``: ``auto`` asks ``server/discover`` and falls back to the handshake; a revision pins it.

    A pinned ``2025-11-25`` is the handshake: a server may answer it with an older revision, as that protocol allows.
    ``describe_seconds`` bounds reading the tool list (default 10 s), which has no deadline of an action.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["auto", "2026-07-28", "2025-11-25"] = "auto"
    describe_seconds: float = Field(default=10.0, gt=0, le=120)
