"""What keeps an upstream from being used, found before anything is consumed."""

from __future__ import annotations


class UpstreamFault(Exception):
    """``code`` is a stable upper-case word for the ledger; the message names the upstream's setting, never a secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
