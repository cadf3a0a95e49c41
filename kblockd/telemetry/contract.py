"""The telemetry contract: every span and every attribute that may leave the daemon, in one table.

Nothing else leaves: ``require`` refuses it in tests and development, the exporter drops and counts it in production.
Values are words of a closed set, configured names, version numbers, counts or flags; anything else becomes ``other``,
so attributes stay low in cardinality and cannot carry anybody's data. No attribute holds an execution id: the ledger
holds the trace id. ``python -m kblockd.telemetry.contract`` prints the README's tables.
Source: R508 to R532.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from kblockd.domain.errors import Reason
from kblockd.domain.outcome import CallStatus, Finding
from kblockd.domain.stages import Stage
from kblockd.domain.states import ResultClass, State
from kblockd.telemetry.recorder import StageRow, Trace, Value

ROOT: Final = "kblock.execution"
OTHER: Final = "other"
MAX_VALUE: Final = 128  # characters
MAX_COUNT: Final = 10_000
MAX_VERSIONS: Final = 64  # distinct values of one version attribute per process

Kind = Literal["word", "configured", "version", "count", "flag"]


@dataclass(frozen=True, slots=True)
class SpanRule:
    """A span name, whether it is an outgoing call, the requirements that it meets, and what it covers."""

    name: str
    client: bool
    requirements: str
    covers: str


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """An attribute name, the kind of its values, its closed set of words if any, requirements and meaning."""

    name: str
    kind: Kind
    words: frozenset[str]
    requirements: str
    means: str


def _stage(of: Stage, requirements: str, covers: str) -> SpanRule:
    return SpanRule(f"kblock.{of.label}", False, requirements, covers)


SPANS: Final[tuple[SpanRule, ...]] = (
    SpanRule(ROOT, False, "R508 R532", "one call of an execution; its parent is the caller's span"),
    _stage(Stage.AUTHENTICATE, "R509", "credential to principal, authorisation of the call"),
    _stage(Stage.ADMIT, "R508", "strict JSON, limits, contract, target, action digest"),
    _stage(Stage.REPLAY, "R508", "caller key or fingerprint: stored outcome, in progress, conflict"),
    _stage(Stage.DECIDE, "R508 R509", "pins and the policy decision"),
    _stage(Stage.AWAIT_APPROVAL, "R508", "waiting for approvers"),
    _stage(Stage.PREFLIGHT, "R510", "everything again as it is configured now"),
    _stage(Stage.LEASE, "R511", "action lease and target lock"),
    _stage(Stage.READ, "R512", "authoritative read of the target"),
    _stage(Stage.PRECONDITIONS, "R512", "policy over the snapshot; does the decision stand"),
    _stage(Stage.CONSUME, "R508", "the one consumption, durable"),
    _stage(Stage.MARK_SENT, "R508", "the send marker, durable"),
    _stage(Stage.DISPATCH, "R513", "the tool execution: the only side effect"),
    _stage(Stage.CLASSIFY, "R508", "adapter outcome to result class"),
    _stage(Stage.RECONCILE, "R508 R515", "lookups of an unknown outcome, polls of an accepted one"),
    _stage(Stage.VERIFY, "R516", "independent reads until a verdict"),
    _stage(Stage.RECOVER, "R517 R518", "the choice of retry, rollback, compensation, forward, containment or manual"),
    _stage(Stage.SEAL, "R519", "the final transition: RESULT and receipt"),
    _stage(Stage.HOLD, "R519", "in place of the seal: an operator decides"),
    SpanRule("kblock.upstream_call", True, "R514", "one adapter call inside a stage: the downstream operation"),
    SpanRule("kblock.poll", False, "R515", "one iteration of reconcile, track or verify"),
)

AGENT: Final = "kblock.agent"
AGENT_VERSION: Final = "kblock.agent.version"
WORKFLOW_TYPE: Final = "kblock.workflow.type"
OPERATION: Final = "kblock.operation"
UPSTREAM: Final = "kblock.upstream"
TOOL: Final = "kblock.tool"
SERVER_VERSION: Final = "kblock.server.version"
ENVIRONMENT: Final = "kblock.environment"
RESULT_CLASS: Final = "kblock.result_class"
RECOVERY: Final = "kblock.recovery"
ERROR: Final = "error.type"
VERIFICATION: Final = "kblock.verification"
STATE: Final = "kblock.state"
STATUS: Final = "kblock.status"
EFFECT: Final = "kblock.policy.effect"
SENT: Final = "kblock.sent"
CALL: Final = "kblock.call"
FINDING: Final = "kblock.finding"
ATTEMPT: Final = "kblock.attempt"
REPLAYED: Final = "kblock.replayed"
LATE: Final = "kblock.sampled_late"
UNKEPT: Final = "kblock.unkept_spans"

_EXCEPTIONS: Final = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_ERRORS: Final = frozenset(
    {
        *(reason.value for reason in Reason),
        *_EXCEPTIONS,
        "CancelledError",
        "FailpointError",
        "AdapterFault",
        "Conflict",
        "StoreFailed",
        "Raced",
        "IllegalTransition",
    }
)


def _word(name: str, words: type | str, requirements: str, means: str) -> AttributeRule:
    values = words.split() if isinstance(words, str) else [str(member) for member in words if str(member)]  # type: ignore[attr-defined]
    return AttributeRule(name, "word", frozenset(values), requirements, means)


def _of(kind: Kind, name: str, requirements: str, means: str) -> AttributeRule:
    return AttributeRule(name, kind, frozenset(), requirements, means)


ATTRIBUTES: Final[Mapping[str, AttributeRule]] = {
    rule.name: rule
    for rule in (
        _of("configured", AGENT, "R520", "id of the configured principal that calls"),
        _of("version", AGENT_VERSION, "R520", "version of the agent, where its principal has one"),
        _of("configured", WORKFLOW_TYPE, "R521", "kind of workflow that the action belongs to"),
        _of("configured", OPERATION, "R521", "type of the action, as its contract names it"),
        _of("configured", UPSTREAM, "R522", "name of the configured upstream"),
        _of("configured", TOOL, "R522", "name of a tool that a contract names"),
        _of("version", SERVER_VERSION, "R523", "what the upstream says of itself"),
        _of("configured", ENVIRONMENT, "R524", "environment of the contract"),
        _word(RESULT_CLASS, ResultClass, "R525", "class of the outcome"),
        _word(
            RECOVERY,
            "retry rollback compensation forward containment manual",
            "R517 R518 R526",
            "recovery that the policy chose",
        ),
        AttributeRule(
            ERROR, "word", _ERRORS, "R527", "reason of a refusal, or the class of a fault; set from the row's error"
        ),
        _word(VERIFICATION, "expected tolerated prohibited inconclusive", "R528", "verdict of the verification"),
        _word(STATE, State, "R519", "state that the execution has reached"),
        _word(STATUS, CallStatus, "R508", "what the call answered"),
        _word(EFFECT, "deny require_approval allow observe", "R508 R509", "what the policy decided"),
        _word(SENT, "not_sent answered accepted lost", "R513", "what is known of a dispatch"),
        _word(CALL, "describe read invoke lookup poll cancel", "R514", "which adapter call"),
        _word(FINDING, Finding, "R508", "what a reconciliation found"),
        _of("count", ATTEMPT, "R517", "number of the attempt, from 1"),
        _of("flag", REPLAYED, "R508", "the answer is a stored one"),
        _of("flag", LATE, "R508", "kept for its outcome, not by the decision at the start"),
        _of("count", UNKEPT, "R508", "rows beyond the bound of one trace"),
    )
}

_BY_NAME: Final[Mapping[str, SpanRule]] = {rule.name: rule for rule in SPANS}
_VERSION: Final = re.compile(r"v?[0-9]{1,5}(\.[0-9]{1,5}){1,3}([-+.]?(a|b|rc|alpha|beta|dev|post)\.?[0-9]{0,3})?")


class ContractViolation(Exception):
    """A span or attribute outside the table. Only raised in tests and development."""


def span_rule(row: StageRow) -> SpanRule | None:
    """The rule for a row, by its name; None if it is not exported."""
    return _BY_NAME.get(f"kblock.{row.name}")


class Vocabulary:
    """Turns recorded values into exportable ones. ``configured`` holds the configured names for each attribute of kind
    *configured* (and for ``error.type`` further codes, such as a plugin's); it is read at each export, so a live
    mapping follows a reload. Used by the one exporter thread."""

    def __init__(self, configured: Mapping[str, Container[str]]) -> None:
        self._configured = configured
        self._versions: dict[str, set[str]] = {}

    def value(self, name: str, raw: object) -> Value | None:
        """The value to export, ``other`` for a text outside the table, None for a value that must be dropped."""
        rule = ATTRIBUTES.get(name)
        if rule is None or not _typed(rule, raw):
            return None
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, int):
            return max(0, min(raw, MAX_COUNT))
        return self._text(rule, str(raw))

    def _text(self, rule: AttributeRule, text: str) -> str:
        if len(text) > MAX_VALUE:
            return OTHER
        if rule.kind == "version":
            return text if self._version(rule.name, text) else OTHER
        known = text in rule.words or text in self._configured.get(rule.name, ())
        return text if known else OTHER

    def _version(self, name: str, text: str) -> bool:
        if not _VERSION.fullmatch(text):
            return False
        seen = self._versions.setdefault(name, set())
        if len(seen) < MAX_VERSIONS:
            seen.add(text)
        return text in seen


def _typed(rule: AttributeRule, raw: object) -> bool:
    if rule.kind == "flag":
        return isinstance(raw, bool)
    if rule.kind == "count":
        return isinstance(raw, int) and not isinstance(raw, bool)
    return isinstance(raw, str)


def require(trace: Trace) -> None:
    """For tests and development: raises ``ContractViolation`` naming every span, attribute and word outside the table.
    Names of kind *configured* and versions are not checked: callers may ask for unknown tools."""
    faults = [fault for name, raw in trace.attributes.items() if (fault := _fault(ROOT, name, raw))]
    for row in trace.rows:
        rule = span_rule(row)
        if rule is None:
            faults.append(f"span {row.stage}/{row.name!r} is not in the contract")
        place = rule.name if rule else row.name
        faults += [fault for name, raw in row.attributes.items() if (fault := _fault(place, name, raw))]
    if faults:
        raise ContractViolation("; ".join(faults) + ". Add it to kblockd/telemetry/contract.py, or do not record it")


def _fault(place: str, name: str, raw: object) -> str:
    rule = ATTRIBUTES.get(name)
    if rule is None:
        return f"{place}: attribute {name!r} is not in the contract"
    if not _typed(rule, raw):
        return f"{place}: attribute {name!r} is not a {rule.kind}"
    if rule.kind == "word" and rule.name != ERROR and raw not in rule.words:
        return f"{place}: attribute {name!r} holds a word that is not in the contract"
    return ""


def markdown() -> str:
    """The two tables of the README."""
    lines = ["| span | kind | covers | requirements |", "|---|---|---|---|"]
    for span in SPANS:
        kind = "server" if span.name == ROOT else "client" if span.client else "internal"
        lines.append(f"| `{span.name}` | {kind} | {span.covers} | {span.requirements} |")
    lines += ["", "| attribute | values | means | requirements |", "|---|---|---|---|"]
    for rule in ATTRIBUTES.values():
        lines.append(f"| `{rule.name}` | {_values(rule)} | {rule.means} | {rule.requirements} |")
    return "\n".join(lines) + "\n"


def _values(rule: AttributeRule) -> str:
    if rule.name == ERROR:
        return "reasons of the error table, built-in exceptions, adapter codes; else `other`"
    texts = {
        "word": ", ".join(f"`{word}`" for word in sorted(rule.words)),
        "configured": "a name from the configuration; else `other`",
        "version": f"a version number, at most {MAX_VERSIONS} distinct ones; else `other`",
        "count": f"0 to {MAX_COUNT}",
        "flag": "true, false",
    }
    return texts[rule.kind]


if __name__ == "__main__":
    print(markdown(), end="")
