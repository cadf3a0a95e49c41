"""The one table, and what arrives of it."""

from __future__ import annotations

import base64
import inspect
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2

from kblockd.domain import errors
from kblockd.domain.errors import InvalidArgument, KblockError, Reason, Violation
from kblockd.policy.deciding import PolicyFailure
from kblockd.rpc import status
from kblockd.store.protocol import StoreFailed
from tests.unit.rpc.fakes import FakeIds


def details(found: object, kind: type) -> list:
    messages = []
    for detail in found.details:
        message = kind()
        if detail.Unpack(message):
            messages.append(message)
    return messages


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_row(reason: Reason) -> None:
    """kblockd/rpc/README.md#reasons: one table maps error classes to codes, and a test demands a row for each."""
    assert isinstance(status.REASONS[reason], grpc.StatusCode)
    assert status.REASONS[reason] in status.CLASSES.values()


def test_every_error_class_has_a_row_and_a_code_of_its_own() -> None:
    classes = {
        kind for _, kind in inspect.getmembers(errors, inspect.isclass)
        if KblockError in kind.__bases__  # one below those has its code by its reason
    }  # fmt: skip
    assert set(status.CLASSES) == classes
    assert len(set(status.CLASSES.values())) == len(classes)


TABLE = {
    "INVALID_ARGUMENT": "INVALID_FIELD UNKNOWN_TOOL UNKNOWN_SCHEMA_VERSION",
    "UNAUTHENTICATED": "UNAUTHENTICATED",
    "PERMISSION_DENIED": "PERMISSION_DENIED",
    "ALREADY_EXISTS": "IDEMPOTENCY_CONFLICT REPLAY",
    "ABORTED": "DUPLICATE_IN_FLIGHT TARGET_BUSY CONFLICT",
    "FAILED_PRECONDITION": "KEY_EXPIRED TWIN_UNRESOLVED POLICY_CHANGED OBSERVE_ENDED UNPINNED_TOOL TOOL_CHANGED "
    "BINDING_CHANGED PREFLIGHT_FAILED PRECONDITION_FAILED TARGET_UNREADABLE POLICY_ERROR",
    "UNAVAILABLE": "POLICY_UNDEFINED POLICY_TYPE POLICY_TIMEOUT POLICY_DOWN STORE_UNAVAILABLE COMMIT_UNKNOWN",
    "RESOURCE_EXHAUSTED": "OVERLOAD CONCURRENCY_LIMIT PENDING_LIMIT",
}


@pytest.mark.parametrize(("code", "word"), [(c, w) for c, words in TABLE.items() for w in words.split()])
def test_the_table_is_that_of_the_interface(code: str, word: str) -> None:
    """kblockd/rpc/README.md#what-a-call-answers; R657 to R669."""
    assert status.REASONS[Reason(word)].name == code
    assert status.code_of(KblockError(Reason(word), "x")).name == code


def test_the_raisers_class_decides() -> None:
    error = errors.FailedPrecondition(Reason.UPSTREAM_UNAVAILABLE, "x")
    assert status.code_of(error) is grpc.StatusCode.FAILED_PRECONDITION


def test_a_refusal_says_everything() -> None:
    """R668, R673, R674."""
    error = errors.Aborted(
        Reason.TARGET_BUSY, "busy", executed=False, consumed=True, retryable=True, next_step="repeat",
        execution_id="exec_1", retry_after_seconds=1.5, violations=[Violation("target", "is locked")],
    )  # fmt: skip
    found = status.to_status(error)
    assert (found.code, found.message) == (grpc.StatusCode.ABORTED.value[0], "busy")
    (info,) = details(found, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("TARGET_BUSY", "kblockd")
    assert dict(info.metadata) == {
        "executed": "false", "consumed": "true", "retryable": "true", "next_step": "repeat", "execution_id": "exec_1",
    }  # fmt: skip
    (retry,) = details(found, error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 1500
    (bad,) = details(found, error_details_pb2.BadRequest)
    assert [(v.field, v.description) for v in bad.field_violations] == [("target", "is locked")]


def test_an_unknown_exception_tells_nothing_but_a_correlation_id(caplog: pytest.LogCaptureFixture) -> None:
    """kblockd/rpc/README.md#what-a-call-answers: what is unknown becomes INTERNAL without detail; the detail is in the
    log."""
    known, correlation = status.translate(RuntimeError("/var/lib/kblockd/secret"), FakeIds())
    found = status.to_status(known, correlation_id=correlation)
    assert found.code == grpc.StatusCode.INTERNAL.value[0]
    assert b"secret" not in found.SerializeToString()
    (info,) = details(found, error_details_pb2.ErrorInfo)
    assert info.metadata["correlation_id"] == correlation
    assert "executed" not in info.metadata
    assert "consumed" not in info.metadata
    assert correlation in caplog.text
    assert "secret" in caplog.text


def test_an_internal_error_of_our_own_tells_nothing_either() -> None:
    found = status.to_status(errors.Internal(Reason.INTERNAL, "row 7 of /secret"), correlation_id="err_1")
    assert b"secret" not in found.SerializeToString()


# With a revision: what a policy in force makes of an input stays the same, however often it is asked.
FAILURES = [
    ("POLICY_UNDEFINED", "", "UNAVAILABLE", True),
    ("POLICY_UNDEFINED", "r1", "UNAVAILABLE", False),
    ("POLICY_TYPE", "r1", "UNAVAILABLE", False),
    ("POLICY_ERROR", "r1", "FAILED_PRECONDITION", False),
    ("POLICY_TIMEOUT", "r1", "UNAVAILABLE", True),
    ("POLICY_DOWN", "r1", "UNAVAILABLE", True),
]


@pytest.mark.parametrize(("reason", "revision", "code", "retryable"), FAILURES)
def test_agt_08_a_policy_failure_says_which_and_whether_a_repeat_can_change_it(
    reason: str, revision: str, code: str, retryable: bool
) -> None:
    known, _ = status.translate(PolicyFailure(Reason(reason), "socket /run/x", revision=revision), FakeIds())
    assert (status.code_of(known).name, known.reason, known.retryable) == (code, reason, retryable)
    assert not known.executed
    assert "/run" not in known.message
    assert ("does not help" in known.next_step) is not retryable


@pytest.mark.parametrize(("unknown", "reason"), [(True, "COMMIT_UNKNOWN"), (False, "STORE_UNAVAILABLE")])
def test_led_19_a_store_failure_is_never_the_callers_fault(unknown: bool, reason: str) -> None:
    """LED-19: UNAVAILABLE, and no path or key in the message."""
    known, _ = status.translate(StoreFailed("IO error: /var/lib/LOCK", unknown=unknown), FakeIds())
    assert (status.code_of(known).name, known.reason) == ("UNAVAILABLE", reason)
    assert known.retryable is not unknown
    assert "/var" not in status.to_status(known).message


def test_a_status_always_fits_into_its_metadata() -> None:
    violations = [Violation("f" * 10_000, "ü" * 10_000)] * 500
    error = InvalidArgument(Reason.INVALID_FIELD, "ü" * 100_000, violations=violations, next_step="n" * 100_000)
    data = status.to_status(error).SerializeToString()
    assert len(data) < 8000
    assert status.to_status(InvalidArgument(Reason.INVALID_FIELD, "\ud800")).message == "?"


@pytest.mark.parametrize("letter", ["a", "%", "ä", "漢", "😀"])
def test_r673_a_status_fits_into_the_trailing_metadata_whatever_it_says(letter: str) -> None:
    """R673: gRPC clients take 8 KiB of it; of a longer one they make RESOURCE_EXHAUSTED, which says "call again"."""
    violations = [Violation(f"envelope.arguments_json/{n}{letter * 300}", letter * 300) for n in range(16)]
    sentence = "; ".join(f"{one.field}: {one.description}" for one in violations)
    error = InvalidArgument(
        Reason.INVALID_FIELD, sentence, violations=violations, next_step=sentence, execution_id="exe_" + "0" * 32
    )
    found = status.to_status(error, correlation_id="err_" + "0" * 32)
    message = quote(found.message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
    assert len(message) + len(base64.b64encode(found.SerializeToString())) < 8192 - 400  # names and other headers
    assert len(message) > status.MAX_MESSAGE // 2
    (bad,) = details(found, error_details_pb2.BadRequest)
    assert bad.field_violations[0].field.startswith("envelope.arguments_json/0")
