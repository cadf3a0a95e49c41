"""Exit codes, and errors as sentences with the next step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

import click

from kblockd.cli.output import emit, is_json, plain
from kblockd.client import Answer, ApprovalTimeout, CallError, Completed, Denied, UpstreamError
from kblockd.config import ConfigurationError
from kblockd.evidence.errors import EvidenceError
from kblockd.policy.faults import PolicyRefused
from kblockd.store.protocol import StoreRefused
from kblockd.upstream.catalog import CatalogError

P = ParamSpec("P")
R = TypeVar("R")

OK: Final = 0
ERROR: Final = 1
USAGE: Final = 2
UNFINISHED: Final = 3
WITHOUT_EFFECT: Final = 4
UNKNOWN: Final = 5

_REFUSALS: Final = (
    ConfigurationError,
    EvidenceError,
    StoreRefused,
    CatalogError,
    OSError,
    ValueError,
)


def code_of(answer: Answer) -> int:
    """What a shell may branch on."""
    if isinstance(answer, Completed):
        return OK
    if isinstance(answer, Denied | UpstreamError):
        return WITHOUT_EFFECT
    return UNFINISHED


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Turns errors into a sentence (or a JSON document) and an exit code; a defect keeps its traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ApprovalTimeout as error:
            _say(str(error), {"error": "APPROVAL_TIMEOUT", "approval_id": error.pending.approval_id})
            sys.exit(UNFINISHED)
        except CallError as error:
            _say(_sentence(error), _document(error))
            sys.exit(UNKNOWN if error.outcome_unknown else ERROR)
        except PolicyRefused as error:
            faults = [fault.to_json() for fault in error.faults]
            _say(str(error), {"error": "PolicyRefused", "message": str(error), "faults": faults})
            sys.exit(ERROR)
        except _REFUSALS as error:
            _say(str(error), {"error": type(error).__name__, "message": str(error)})
            sys.exit(ERROR)

    return run


def _say(sentence: str, document: dict[str, Any]) -> None:
    if is_json():
        emit(document)
    else:
        click.echo("\n".join(map(plain, sentence.splitlines())), err=True)


def _sentence(error: CallError) -> str:
    lines = [f"{error.reason}: {error.message}"]
    if error.reason == "NETWORK_ERROR" and not error.outcome_unknown:
        lines.append("next: see that kblockd serves, that --socket is right, and that you may open it")
    elif error.next_step:
        lines.append(f"next: {error.next_step}")
    if error.outcome_unknown and error.call is not None and error.call.key is not None:
        lines.append(f"The outcome is unknown. Repeat the same command with --key {error.call.key}")
    return "\n".join(lines)


def _document(error: CallError) -> dict[str, Any]:
    return {
        "error": error.reason,
        "code": error.code,
        "message": error.message,
        "execution_id": error.execution_id,
        "executed": error.executed,
        "consumed": error.consumed,
        "retryable": error.retryable,
        "outcome_unknown": error.outcome_unknown,
        "next_step": error.next_step,
        "correlation_id": error.correlation_id,
        "violations": [{"field": v.field, "description": v.description} for v in error.violations],
        "key": error.call.key if error.call is not None else None,
    }
