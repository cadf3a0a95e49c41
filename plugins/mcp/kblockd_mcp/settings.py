"""The ``settings`` of an MCP upstream."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"


class McpSettings(BaseModel):
    """``protocol``: ``auto`` tries ``server/discover`` and falls back to the handshake; a revision pins it.

    ``2025-11-25`` pins the handshake, in which a server may choose an older revision, as that protocol allows.
    ``describe_seconds`` bounds reading the tool list (default 10 s), which no action's deadline bounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["auto", "2026-07-28", "2025-11-25"] = "auto"
    describe_seconds: float = Field(default=10.0, gt=0, le=120)
