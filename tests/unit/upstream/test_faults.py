"""Retryable is said only of what a repeat can change."""

from __future__ import annotations

import pytest

from kblockd.upstream.faults import transient

PASSING = """
    UPSTREAM_TIMEOUT UPSTREAM_BUSY CONNECT_FAILED CONNECTION_LOST BREAKER_OPEN ADDRESS_UNKNOWN CREDENTIAL_UNREADABLE
    HTTP_408 HTTP_425 HTTP_429 HTTP_500 HTTP_503 HTTP_599 RPC_ERROR_32603 ANSWER_NOT_JSON CONTENT_ENCODING_BROKEN
"""
STAYING = """
    HTTP_400 HTTP_401 HTTP_403 HTTP_404 HTTP_409 HTTP_410 HTTP_451 HTTP_4290 TOOL_ERROR TOOL_UNKNOWN REPORTED_FAILURE
    ADDRESS_REFUSED ORIGIN_REFUSED TLS_PIN_MISMATCH REDIRECT_REFUSED RESPONSE_TOO_LARGE RESULT_NOT_STORABLE
    DEFINITION_NOT_CANONICAL UPSTREAM_UNAUTHORIZED CREDENTIAL_INVALID PLUGIN_RAISED RPC_ERROR_32602 ANSWER_EMPTY
"""


@pytest.mark.parametrize(
    ("code", "may_pass"), [*((c, True) for c in PASSING.split()), *((c, False) for c in STAYING.split()), ("", False)]
)
def test_what_the_other_side_refuses_stays_refused(code: str, may_pass: bool) -> None:
    assert transient(code) is may_pass
