"""Randomness as a parameter."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    """Mints identifiers and salts."""

    def new(self, prefix: str) -> str:
        """``prefix`` + "_" + 32 lowercase hex digits: 48 bits of time first, so that they sort by age, then random."""
        ...

    def salt(self) -> str:
        """128 random bits, lowercase hex."""
        ...
