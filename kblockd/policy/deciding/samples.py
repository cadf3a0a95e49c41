"""The probes of an activation: two inputs with every key of config/policy/README.md#input, and the test of a reply, for
both engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kblockd.policy.deciding import entrypoints
from kblockd.policy.deciding.engine import PolicyFailure
from kblockd.policy.faults import BundleFault

TYPED: Final = "return exactly the keys and types of the entry point"

_BARE: Final[dict[str, Any]] = {
    "v": "kblockd.policy/1",
    "now": "2026-01-01T00:00:00.000000Z",
    "principal": {"id": "probe", "kind": "agent", "tenant": "probe", "owner": "team:probe", "roles": []},
    "method": "/kblock.v1.ExecutionService/Execute",
    "envelope": {},
    "action": {
        "type": "probe",
        "risk_tier": "low",
        "environment": "probe",
        "tool": "probe",
        "tool_version": "",
        "target": {"type": "probe", "id": "probe"},
        "intent": {},
        "digest": "0" * 64,
    },
    "args": {},
    "contract": {},
    "binding": {},
    "approval": None,
    "snapshot": None,
    "read": None,
    "outcome": None,
    "finding": None,
}
_FULL: Final[dict[str, Any]] = {
    **_BARE,
    "approval": {"id": "probe", "state": "approved"},
    "snapshot": {"version": "1"},
    "read": {},
    "outcome": {
        "class": "unknown_outcome",
        "code": "",
        "attempts": 1,
        "maximum_attempts": 1,
        "marker": True,
        "irreversible": False,
    },
    "finding": {"finding": "unprovable", "verdict": "inconclusive"},
}

SAMPLES: Final = (json.dumps(_BARE).encode(), json.dumps(_FULL).encode())


def misfit(entrypoint: str, reply: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with a reply to a sample and the next step, or None."""
    if "value" not in reply:
        return f"{entrypoint} is undefined for the sample input", "add `default result := ...` that denies"
    try:
        entrypoints.check(entrypoint, reply["value"])
    except PolicyFailure as failure:
        return failure.message, TYPED
    return None


def missing(entrypoint: str) -> BundleFault:
    """The fault of a bundle without this entry point."""
    package = ".".join(entrypoint.split("/")[:-1])
    return BundleFault(".", 0, 0, f"package {package} has no rule `result`", f"add a file with package {package}")
