"""The seven worked examples: a canonical call of each with its contract, and what a situation changes in it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kblockd.config import document as documents
from kblockd.domain import pointer
from kblockd.domain.contract import ActionContract, parse
from kblockd.domain.contract.derive import derive_intent, derive_target

ACTIONS: Final = Path(__file__).parents[3] / "config" / "actions"
DIGEST: Final = "sha256:" + "4f7c21b05a9e8d33" * 4
RUNNING: Final = "sha256:" + "00aa21b05a9e8d33" * 4
OUTCOME: Final = {
    "class": "unknown_outcome",
    "code": "UPSTREAM_TIMEOUT",
    "attempts": 1,
    "maximum_attempts": 2,
    "marker": True,
    "irreversible": False,
}
Changes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Example:
    """``args`` as an agent sends them, ``snapshot`` and ``read`` as the upstream answers."""

    args: Mapping[str, Any]
    snapshot: Mapping[str, Any]
    read: Mapping[str, Any]


@functools.cache
def contract(operation: str) -> ActionContract:
    """The shipped one."""
    return parse(documents.read(ACTIONS / f"{operation}.yaml").value)


def question(operation: str, changes: Changes) -> dict[str, Any]:
    """The input of a policy with everything that is ever known; ``changes`` is by RFC 6901 pointer."""
    example, made = EXAMPLES[operation], contract(operation)
    args = dict(example.args)
    found: dict[str, Any] = {
        "v": "kblockd.policy/1",
        "now": "2026-11-29T10:00:00.000000Z",
        "principal": {"id": "local:agent", "kind": "agent", "tenant": "acme", "owner": "team:bot", "roles": []},
        "method": "/kblock.v1.ExecutionService/Execute",
        "envelope": {"target": {**derive_target(made, args), "version": ""}},
        "action": {
            "type": operation,
            "risk_tier": made.action.risk_tier,
            "environment": made.environment,
            "tool": made.tool.name,
            "tool_version": "",
            "target": derive_target(made, args),
            "intent": derive_intent(made, args),
            "digest": "0" * 64,
        },
        "args": args,
        "contract": made.document,
        "binding": {},
        "approval": None,
        "snapshot": example.snapshot,
        "read": example.read,
        "outcome": {**OUTCOME, "irreversible": made.recovery.irreversible_step},
        "finding": {"finding": "absent", "verdict": ""},
    }
    found = copy.deepcopy(found)
    for path, value in changes.items():
        *parents, last = pointer.parse(path)
        node = found
        for part in parents:
            node = node[part]
        node[last] = value
    return found


EXAMPLES: Final[Mapping[str, Example]] = {
    "ticket.create": Example(
        {"queue": "support", "title": "Printer on fire", "body": "It burns.", "priority": "normal"},
        {"exists": True, "open": True, "open_tickets": 99, "most_tickets": 100},
        {"tickets": [{"id": "T-1", "queue": "support", "title": "Printer on fire", "priority": "normal"}]},
    ),
    "service.restart.execute": Example(
        {"service": "search", "strategy": "rolling"},
        {
            "exists": True,
            "version": 4,
            "application_version": "3.1.4",
            "instances": 3,
            "healthy_instances": 2,
            "operation_running": False,
            "frozen_until": "",
        },
        {
            "operation_state": "completed",
            "restarts": 1,
            "instances": 3,
            "healthy_instances": 3,
            "application_version": "3.1.4",
            "other_changes": [],
        },
    ),
    "firewall.rule.change": Example(
        {"group": "web", "change": "add", "protocol": "tcp", "port": 443, "cidr": "203.0.113.0/24"},
        {"exists": True, "version": 12, "locked": False, "most_rules": 50, "rules": []},
        {"rules": [{"protocol": "tcp", "port": 443, "cidr": "203.0.113.0/24"}]},
    ),
    "email.send": Example(
        {
            "sender": "support@acme.example",
            "to": "ann@customer.example",
            "subject": "Your order",
            "body": "It is on its way.",
        },
        {"address": "ann@customer.example", "suppressed": False, "consented": True, "sent_today": 2},
        {"messages": [{"to": "ann@customer.example", "subject": "Your order", "state": "delivered"}]},
    ),
    "payment.refund.create": Example(
        {"order_id": "7", "amount": "25.00", "currency": "EUR"},
        {
            "order_id": "7",
            "exists": True,
            "version": 1,
            "status": "paid",
            "amount": "100.00",
            "currency": "EUR",
            "refunded": "0.00",
        },
        {"refunds": [{"refund_id": "rf_1", "amount": "25.00", "currency": "EUR"}]},
    ),
    "record.delete": Example(
        {"record": "c-81", "type": "customer", "reason": "erasure_request"},
        {
            "exists": True,
            "version": 3,
            "type": "customer",
            "legal_hold": False,
            "dependents": 0,
            "retained_until": "",
            "backed_up_at": "2026-11-29T02:00:00Z",
        },
        {"record": "c-81", "state": "deleted", "dependents_deleted": 0},
    ),
    "application.deploy": Example(
        {"application": "storefront", "digest": DIGEST, "strategy": "canary"},
        {
            "exists": True,
            "version": 41,
            "running": RUNNING,
            "frozen": False,
            "artifact": {
                "digest": DIGEST,
                "signer": "ci-storefront",
                "scan": {"state": "passed", "at": "2026-11-28T10:00:00Z", "critical": 0},
            },
        },
        {"digest": DIGEST, "state": "completed", "instances": 6, "healthy_instances": 6, "deployments": 1},
    ),
}
