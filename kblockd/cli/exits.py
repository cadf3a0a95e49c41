"""Exit codes, and errors as sentences with the next step."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import click

from kblockd.cli.output import emit, is_json, plain
from kblockd.client import Answer, ApprovalTimeout, CallError, Completed, Denied, UpstreamError
from kblockd.config import ConfigurationError
from kblockd.evidence.errors import EvidenceError
from kblockd.policy.faults import BundleRefused
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

_REPEAT: Final = "Repeat the same command with --key"
_REFUSALS: Final = (
    ConfigurationError,
    EvidenceError,
    StoreRefused,
    CatalogError,
    OSError,
    ValueError,
)


def code_of(answer: Answer) -> int:
    """The exit code for an answer."""
    if isinstance(answer, Completed):
        return OK
    if isinstance(answer, Denied | UpstreamError):
        return WITHOUT_EFFECT
    return UNFINISHED


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Turns errors into a sentence (or a JSON document) and an exit code; a defect still prints its traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ApprovalTimeout as error:
            pending = error.pending
            key = pending.call.key if pending.call is not None else None
            say(str(error), {"error": "APPROVAL_TIMEOUT", "approval_id": pending.approval_id, "key": key})
            sys.exit(UNFINISHED)
        except CallError as error:
            say(_sentence(error), _document(error))
            sys.exit(UNKNOWN if error.outcome_unknown else ERROR)
        except BundleRefused as error:
            faults = [fault.to_json() for fault in error.faults]
            say(str(error), {"error": "PolicyRefused", "message": str(error), "faults": faults})
            sys.exit(ERROR)
        except BrokenPipeError:
            raise  # the reader has closed the pipe: click exits silently
        except _REFUSALS as error:
            message = _message(error)
            say(message, {"error": type(error).__name__, "message": message})
            sys.exit(ERROR)

    return run


def interrupted(key: str) -> NoReturn:
    """Ends an interrupted command (Ctrl-C) whose call may go on."""
    sentence = f"interrupted, but the action may go on: its outcome is unknown. {_REPEAT} {key}"
    say(sentence, {"error": "INTERRUPTED", "message": sentence, "outcome_unknown": True, "key": key})
    sys.exit(UNKNOWN)


def _message(error: Exception) -> str:
    """The error's text; a system error as file and reason, without its number and Python's quotes."""
    if not isinstance(error, OSError) or type(error).__str__ is not OSError.__str__ or not error.strerror:
        return str(error)
    about = error.filename if error.filename is not None else "standard output"
    return f"{about}: {error.strerror}; check the path, its permissions and the free space"


def say(sentence: str, document: dict[str, Any]) -> None:
    """Reports a failure: the document with ``--json``, else the sentence on standard error."""
    if is_json():
        with contextlib.suppress(OSError):  # standard output itself may have failed
            emit(document)
            return
    with contextlib.suppress(OSError):
        click.echo("\n".join(map(plain, sentence.splitlines())), err=True)


def _sentence(error: CallError) -> str:
    lines = [f"{error.reason}: {error.message}"]
    if error.reason == "NETWORK_ERROR" and not error.outcome_unknown:
        lines.append("next: check that kblockd is serving, that --socket is right, and that you may open it")
    elif error.next_step:
        lines.append(f"next: {error.next_step}")
    if error.outcome_unknown and error.call is not None and error.call.key is not None:
        lines.append(f"The outcome is unknown. {_REPEAT} {error.call.key}")
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
