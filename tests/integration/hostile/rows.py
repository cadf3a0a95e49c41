"""What a row of the table is, and the ways in which an action can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.upstreams.modes import ABANDONED_SECONDS, Mode

ADAPTERS: Final = ("http", "mcp", "mcp-2025")  # the last is MCP's handshake revision; the others' names are plugins'
FINAL_SECONDS: Final = 1
PATIENT_SECONDS: Final = int(ABANDONED_SECONDS) + 3  # finality where an abandoned call may still be carried out


@dataclass(frozen=True, slots=True)
class Expected:
    """``attempt`` and ``code`` are the class and code of the first attempt, ``state``, ``result`` and ``end`` how the
    action ends; ``attempts`` counts send markers, ``calls`` requests that reached the upstream."""

    attempt: str
    code: str
    state: str
    result: str
    end: str = ""
    attempts: int = 1
    calls: int = 1
    effects: int = 1
    then: str = "completed"  # the next action over the same upstream, which behaves again


@dataclass(frozen=True, slots=True)
class Row:
    """One behaviour, with the cases and requirements that it stands for; ``http`` or ``mcp`` is None where the protocol
    cannot say such a thing."""

    mode: Mode
    does: str
    cases: str
    http: Expected | None
    mcp: Expected | None
    every: bool = False  # every call meets the misbehaviour
    deduplicates: bool = False  # the upstream has each effect once a key
    tool: str = "refund"
    timeout_seconds: int = 10
    final_seconds: int = FINAL_SECONDS
    proof_seconds: int = 10  # for the verification

    def expected(self, adapter: str) -> Expected | None:
        """None where this adapter has no such row."""
        return self.http if adapter == "http" else self.mcp


def well(code: str = "") -> Expected:
    """Answered; the independent read proves it."""
    return Expected("completed_unverified", code, "succeeded", "completed_verified")


def found(code: str) -> Expected:
    """Unknown, and found by its effect key: never a second call."""
    return Expected("unknown_outcome", code, "succeeded", "completed_verified")


def again(code: str) -> Expected:
    """Unknown, proved absent once that is final, and sent again under the same effect key."""
    return Expected("unknown_outcome", code, "succeeded", "completed_verified", attempts=2, calls=2)


def unsent(code: str, calls: int = 1) -> Expected:
    """Proved not to have run by the exchange itself, and sent again at once."""
    return Expected("failed_before_side_effect", code, "succeeded", "completed_verified", attempts=2, calls=calls)


def held(attempt: str, code: str, result: str, end: str, **how: Any) -> Expected:
    """Nothing proves how it ended, or it ended badly: an operator."""
    return Expected(attempt, code, "held", result, end, **how)


def each(mode: Mode, does: str, cases: str, expected: Expected, **how: Any) -> Row:
    """The same with both protocols."""
    return Row(mode, does, cases, expected, expected, **how)


def http(mode: Mode, does: str, cases: str, expected: Expected, **how: Any) -> Row:
    """What only HTTP can say."""
    return Row(mode, does, cases, expected, None, **how)


def mcp(mode: Mode, does: str, cases: str, expected: Expected, **how: Any) -> Row:
    """What only MCP can say."""
    return Row(mode, does, cases, None, expected, **how)
