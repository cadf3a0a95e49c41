"""What keeps an upstream from being used, found before anything is consumed."""

from __future__ import annotations

import re
from typing import Final

_PASSING: Final = frozenset(
    {"UPSTREAM_TIMEOUT", "UPSTREAM_BUSY", "CONNECT_FAILED", "CONNECTION_LOST", "TRANSPORT_FAILED", "LOCAL_RESOURCES"}
    | {"BREAKER_OPEN", "ADDRESS_UNKNOWN", "NO_ANSWER", "ANSWER_NOT_JSON", "CONTENT_ENCODING_BROKEN"}
    | {"EXCHANGE_CLOSED", "PROTOCOL_REFUSED", "PROTOCOL_FAULT"}  # the latter two: a server that is starting
    | {"CREDENTIAL_UNREADABLE"}  # a file that is being rotated is missing for a moment
)
# Too early, too many, or the server's own trouble; of JSON-RPC: internal error, cut off, timed out, half a message.
_PASSING_ANSWER: Final = re.compile(r"HTTP_(?:408|425|429|5\d\d)|RPC_ERROR_(?:32603|32000|32001|32700)")


def passing(code: str) -> bool:
    """Whether the identical question may be answered another time, by the code of an outcome or of a fault.

    What the upstream or the configuration refuses stays refused, and so does every code that is not known here.
    """
    return code in _PASSING or _PASSING_ANSWER.fullmatch(code) is not None


class UpstreamFault(Exception):
    """``code`` is a stable upper-case word for the ledger; the message names the upstream's setting, never a secret."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
