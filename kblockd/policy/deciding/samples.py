"""Inputs for the probes at load: every key of config/policy/README.md#input, in the two shapes that a stage may
send."""

from __future__ import annotations

import json
from typing import Any, Final

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
