"""Outcomes and approvals for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.text import Text

from kblockd.approvals.quoting import quote, visible_blanks
from kblockd.cli.lines import Fields, Line
from kblockd.cli.output import cell, plain, pretty_json, quoted
from kblockd.client import Answer
from kblockd.domain.clock import rfc3339
from kblockd.domain.outcome import ApprovalView, CallStatus

_STYLES: Final = {
    CallStatus.COMPLETED: "green",
    CallStatus.UPSTREAM_ERROR: "red",
    CallStatus.APPROVAL_PENDING: "yellow",
    CallStatus.DENIED: "red",
    CallStatus.IN_PROGRESS: "cyan",
    CallStatus.HELD: "magenta",
}
_NEXT: Final = {
    CallStatus.APPROVAL_PENDING: "after the approval, repeat the identical command with the same --key",
    CallStatus.IN_PROGRESS: "repeat the identical command with the same --key, or kblockctl watch",
    CallStatus.HELD: "an operator looks at the upstream, then kblockctl resolve",
}
_BELOW: Final = 4  # blanks before what belongs to the line above
_LISTED: Final = Line(Text("execution  status  state / result  code  approval", style="dim"), _BELOW)
_ASKED: Final = Line(Text("approval  state  risk  until / requester: summary", style="dim"), _BELOW)
_NONE: Final = Line(Text("none"))


def outcome(answer: Answer) -> Fields:
    """One execution, field by field, without empty fields."""
    table = Fields()
    _row(table, "execution", cell(answer.execution_id, "bold"))
    _row(table, "status", cell(str(answer.status), _STYLES[answer.status]))
    _row(table, "state", cell(f"{answer.state}/{answer.phase}" if answer.phase else answer.state))
    for name, value in (("result", answer.result_class), ("code", answer.code), ("approval", answer.approval_id)):
        if value:
            _row(table, name, cell(value))
    _row(table, "executed", cell(_yes(answer.executed)))
    _row(table, "consumed", cell(_yes(answer.consumed)))
    if answer.outcome_unknown:
        _row(table, "effect", cell("unknown: it may exist", "bold red"))
    if answer.replayed:
        _row(table, "replayed", cell("yes: the stored answer to an earlier identical call"))
    if answer.detail:
        _row(table, "detail", quoted(answer.detail))
    if answer.output_json:
        _row(table, "output", Text(pretty_json(answer.output_json)))
    elif answer.output_omitted:
        _row(table, "output", cell("left out: larger than an answer can be"))
    _evidence(table, answer)
    if answer.call is not None and answer.call.key is not None:
        _row(table, "key", cell(answer.call.key))
    if answer.status in _NEXT:
        _row(table, "next", cell(_NEXT[answer.status]))
    return table


def outcomes(answers: Iterable[Answer]) -> list[Line]:
    """Two lines per execution: the full id, for the next command, and below it the result."""
    lines = [_LISTED]
    for answer in answers:
        state = f"{answer.state}/{answer.phase}" if answer.phase else answer.state
        status = cell(str(answer.status), _STYLES[answer.status])
        lines.append(_line(cell(answer.execution_id, "bold"), status, cell(state)))
        details = "  ".join(part for part in (answer.result_class, answer.code, answer.approval_id) if part)
        if details:
            lines.append(_below(cell(details, "dim")))
    return lines if len(lines) > 1 else [_NONE]


def approvals(views: Iterable[ApprovalView]) -> list[Line]:
    """Two lines per approval: the full id, for the next command, and below it the requester and the summary."""
    lines = [_ASKED]
    for view in views:
        facts = (view.state, view.risk_tier, f"{view.not_after:%Y-%m-%d %H:%MZ}")
        lines.append(_line(cell(view.approval_id, "bold"), *map(cell, facts)))
        lines.append(_below(cell(f"{view.requester}: ", "dim") + _sentence(view.summary)))
    return lines if len(lines) > 1 else [_NONE]


def approval(view: ApprovalView) -> list[Fields | Line]:
    """Everything that the approver decides about. Values chosen by an agent are in quotes (the daemon puts them into
    the summary) or JSON."""
    table = Fields()
    _row(table, "approval", cell(f"{view.approval_id} ({view.state})", "bold"))
    _row(table, "summary", _sentence(view.summary, "bold"))
    _row(table, "risk", cell(view.risk_tier))
    _row(table, "operation", cell(f"{view.operation} in {view.environment}"))
    _row(table, "tool", cell(f"{view.tool} of {view.upstream}"))
    _row(table, "target", cell(f"{view.target_type} {quote(view.target_id)}, {_version(view)}"))
    _row(table, "requester", cell(f"{view.requester}, agent {view.agent}, tenant {view.tenant}"))
    _row(table, "approvals", cell(_needed(view)))
    if view.raised:
        _row(table, "raised", cell(view.raised))
    _row(table, "valid", cell(f"{rfc3339(view.not_before)} to {rfc3339(view.not_after)}"))
    _row(table, "intent", Text(pretty_json(view.intent_json or b"null")))
    _row(table, "arguments", Text(pretty_json(view.arguments_json or b"null")))
    _row(table, "action", cell(view.action_sha256))
    _row(table, "shown", cell(view.presented_sha256))
    warnings = (Line(Text(f"WARNING: {plain(each)}", style="bold yellow"), _BELOW) for each in view.warnings)
    return [table, *warnings]


def _needed(view: ApprovalView) -> str:
    roles = [f"with one of the roles {', '.join(named)}" for named in (view.roles, view.floor_roles) if named]
    return " and ".join([f"{view.count} needed, each of another owner", *roles])


def _version(view: ApprovalView) -> str:
    if view.target_version:
        return f"at version {quote(view.target_version)} when it was asked for"
    return f"version unknown: {view.target_version_note or 'none was kept'}"


def _sentence(summary: str, style: str = "") -> Text:
    """A summary from the contract, whose foreign values are already in quotes."""
    return cell(visible_blanks(summary), style)


def _evidence(table: Fields, answer: Answer) -> None:
    if answer.receipt_dsse:
        proof = "with its proof" if answer.receipt_proof else "not proved yet"
        _row(table, "receipt", cell(f"{len(answer.receipt_dsse)} bytes, {proof}: kblockctl receipt get"))
    elif answer.no_receipt_reason:
        _row(table, "receipt", cell(f"none: {answer.no_receipt_reason}"))


def _row(table: Fields, name: str, value: Text) -> None:
    table.add(name, value)


def _line(*facts: Text) -> Line:
    return Line(Text("  ").join(facts), _BELOW)


def _below(text: Text) -> Line:
    return Line(Text(" " * _BELOW) + text, _BELOW)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
