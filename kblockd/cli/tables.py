"""Outcomes and approvals for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

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
_LISTED: Final = Text("execution  status  state / result  code  approval", style="dim")
_ASKED: Final = Text("approval  state  risk  until / requester: summary", style="dim")


def outcome(answer: Answer) -> Table:
    """One execution, field by field; what is empty is left out."""
    table = _fields()
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


def outcomes(answers: Iterable[Answer]) -> list[Text]:
    """Two lines an execution: the whole id, for the next command, and below it what came of it."""
    lines = [_LISTED]
    for answer in answers:
        state = f"{answer.state}/{answer.phase}" if answer.phase else answer.state
        status = cell(str(answer.status), _STYLES[answer.status])
        lines.append(Text("  ").join((cell(answer.execution_id, "bold"), status, cell(state))))
        more = "  ".join(part for part in (answer.result_class, answer.code, answer.approval_id) if part)
        if more:
            lines.append(Text("    ") + cell(more, "dim"))
    return lines if len(lines) > 1 else [Text("none")]


def approvals(views: Iterable[ApprovalView]) -> list[Text]:
    """Two lines an approval: the whole id, for the next command, and below it who asks for what."""
    lines = [_ASKED]
    for view in views:
        facts = (view.state, view.risk_tier, f"{view.not_after:%Y-%m-%d %H:%MZ}")
        lines.append(Text("  ").join((cell(view.approval_id, "bold"), *map(cell, facts))))
        lines.append(Text("    ") + cell(f"{view.requester}: ", "dim") + cell(view.summary))
    return lines if len(lines) > 1 else [Text("none")]


def approval(view: ApprovalView) -> list[Table | Text]:
    """Everything that the approver decides about. Values that an agent chose stand in quotes (the daemon puts them into
    the summary) or as JSON."""
    table = _fields()
    _row(table, "approval", cell(f"{view.approval_id} ({view.state})", "bold"))
    _row(table, "summary", cell(view.summary, "bold"))
    _row(table, "risk", cell(view.risk_tier))
    _row(table, "operation", cell(f"{view.operation} in {view.environment}"))
    _row(table, "tool", cell(f"{view.tool} of {view.upstream}"))
    _row(table, "requester", cell(f"{view.requester}, agent {view.agent}, tenant {view.tenant}"))
    _row(table, "approvals", cell(f"{view.count} needed, each of another owner"))
    _row(table, "valid", cell(f"{rfc3339(view.not_before)} to {rfc3339(view.not_after)}"))
    _row(table, "intent", Text(pretty_json(view.intent_json or b"null")))
    _row(table, "arguments", Text(pretty_json(view.arguments_json or b"null")))
    _row(table, "action", cell(view.action_sha256))
    _row(table, "shown", cell(view.presented_sha256))
    return [table, *_warnings(view.warnings)]


def _warnings(warnings: Sequence[str]) -> list[Table | Text]:
    return [Text(f"WARNING: {plain(warning)}", style="bold yellow") for warning in warnings]


def _evidence(table: Table, answer: Answer) -> None:
    if answer.receipt_dsse:
        proof = "with its proof" if answer.receipt_proof else "not proved yet"
        _row(table, "receipt", cell(f"{len(answer.receipt_dsse)} bytes, {proof}: kblockctl receipt get"))
    elif answer.no_receipt_reason:
        _row(table, "receipt", cell(f"none: {answer.no_receipt_reason}"))


def _fields() -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _row(table: Table, name: str, value: Text) -> None:
    table.add_row(Text(name), value)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
