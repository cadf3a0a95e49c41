"""Preflight faults: an upstream cannot be used, and nothing has been consumed yet."""

from __future__ import annotations

import re
from typing import Final

_TRANSIENT: Final = frozenset(
    {"UPSTREAM_TIMEOUT", "UPSTREAM_BUSY", "CONNECT_FAILED", "CONNECTION_LOST", "TRANSPORT_FAILED", "LOCAL_RESOURCES"}
    | {"BREAKER_OPEN", "ADDRESS_UNKNOWN", "NO_ANSWER", "ANSWER_NOT_JSON", "CONTENT_ENCODING_BROKEN"}
    | {"EXCHANGE_CLOSED", "PROTOCOL_REFUSED", "PROTOCOL_FAULT"}  # the latter two: a server that is starting
    | {"CREDENTIAL_UNREADABLE"}  # during a rotation the file may be missing for a moment
)
# Too early, rate-limited, server errors; JSON-RPC: internal error, connection closed, timed out, truncated message.
_TRANSIENT_ANSWER: Final = re.compile(r"HTTP_(?:408|425|429|5\d\d)|RPC_ERROR_(?:32603|32000|32001|32700)")


def transient(code: str) -> bool:
    """Whether repeating the identical request may succeed, by the code of an outcome or a fault.

    False for refusals by the upstream or the configuration, and for every unknown code.
    """
    return code in _TRANSIENT or _TRANSIENT_ANSWER.fullmatch(code) is not None


class UpstreamFault(Exception):
    """``code`` is a stable upper-case word for the ledger; the message names the upstream's setting, never a secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
