"""Every field of every record, and what it may hold: identifiers, codes, digests, numbers, flags, times; no free text.

``tests/unit/system/test_records_written.py`` holds the table against the ledger of a running daemon, so that the
records that the tests invent (``histories``) cannot drift from those of the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.records import Record, RecordType

DIGEST = re.compile(r"(?:[0-9a-f]{64})?")
TIME = re.compile(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)?")
CODE = re.compile(r"[A-Z0-9_]{0,64}")
WORD = re.compile(r"[a-z_]{0,32}")
NAME = re.compile(r"[^\s\x00-\x1f\x7f]{0,512}")  # an identifier: no white space, so no sentence
NUMBER, FLAG, CODES, FENCE, STAGES, TARGET, NAMES, PAIRS, FLOOR = range(9)

_DECISION = {
    **dict.fromkeys(("policy_revision", "decision_id"), NAME),
    **dict.fromkeys(("input_sha256", "input_payload"), DIGEST),
    "policy_engine": WORD,
    "policy_us": NUMBER,
    "reasons": CODES,
}
_REFUSED_EFFECT = {"effect": WORD, "observe_until": NAME, "floor": FLOOR}
_REFUSED_APPROVAL = {"count": NUMBER, "roles": NAMES, "floor_roles": NAMES}  # of an effect that asks for one
_DENIAL = {"code": CODE, "policy_revision": NAME, "reasons": CODES}
_KEY = {"kid": NAME, "role": WORD, "publicKey": DIGEST, "fromIndex": NUMBER, "keysetSha256": DIGEST}
_OPERATOR = {"finding": WORD, "operator": NAME, "owner": NAME, "reason_sha256": DIGEST}

_FLOOR = {"count": NUMBER, "roles": NAMES, "raised": FLAG, "policy_effect": WORD, "policy_count": NUMBER}

BODIES: Mapping[RecordType, Mapping[str, Any]] = {
    RecordType.PROPOSED: {
        **dict.fromkeys(("action_id", "agent", "requester", "owner", "environment", "operation", "upstream"), NAME),
        **_DECISION,
        **dict.fromkeys(("origin", "tool", "tool_version", "trace_id"), NAME),
        **dict.fromkeys(("definition_sha256", "contract_sha256", "twin", "fingerprint", "caller_key"), DIGEST),
        **dict.fromkeys(("action_sha256", "call_sha256", "reasons_sha256", "place_sha256"), DIGEST),
        **dict.fromkeys(("risk_tier", "effect"), WORD),
        **dict.fromkeys(("observe_until", "not_after"), TIME),
        "contract_version": NUMBER,
        "floor": FLOOR,
        "target": TARGET,
    },
    RecordType.APPROVAL_REQUESTED: {
        **dict.fromkeys(("approval_id", "requester", "owner", "agent", "target_version"), NAME),
        **dict.fromkeys(("action_sha256", "presented_sha256", "presentation_payload"), DIGEST),
        **dict.fromkeys(("not_before", "not_after"), TIME),
        "count": NUMBER,
        "raised": FLAG,
        **dict.fromkeys(("roles", "floor_roles"), NAMES),
    },
    RecordType.APPROVAL_DECIDED: {
        **dict.fromkeys(("approval_id", "approver", "owner"), NAME),
        **dict.fromkeys(("dsse_sha256", "statement_sha256", "presented_sha256", "reason_sha256"), DIGEST),
        "verdict": WORD,
    },
    RecordType.APPROVAL_REVOKED: {
        **dict.fromkeys(("approval_id", "principal", "owner"), NAME),
        "capacity": WORD,
        "reason_sha256": DIGEST,
    },
    RecordType.AUTHZ_DECIDED: {
        **_DECISION,
        **dict.fromkeys(("principal", "method"), NAME),
        "allow": FLAG,
        "view_sha256": DIGEST,
    },
    RecordType.CALL_REFUSED: {
        **_DECISION,  # of stages 3 and 8 alone
        **_REFUSED_EFFECT,
        **_REFUSED_APPROVAL,
        **dict.fromkeys(("principal", "method", "refers_to"), NAME),
        "reason": CODE,
        "message_sha256": DIGEST,
        "count": NUMBER,  # of those that were counted, with the times of the first and the last of them
        **dict.fromkeys(("since", "until"), TIME),
    },
    RecordType.REJECTED: _DENIAL,
    RecordType.EXPIRED: _DENIAL,
    RecordType.CANCELLED: _DENIAL,
    RecordType.CLAIMED: {
        **_DECISION,
        **dict.fromkeys(("holder", "approval_id", "target_version"), NAME),
        **dict.fromkeys(("effect_key", "snapshot_sha256"), DIGEST),
        "again": FLAG,
        "fence": FENCE,
        "lease_ttl_seconds": NUMBER,
        "deadline_at": TIME,
    },
    RecordType.SENT: {"fence": FENCE, "boot": NAME, "effect_key": DIGEST},
    RecordType.ATTEMPT_OUTCOME: {
        **dict.fromkeys(("sent", "class", "proof", "answer_form"), WORD),
        **dict.fromkeys(("output_sha256", "detail_sha256", "raw_sha256"), DIGEST),
        **dict.fromkeys(("is_error", "late", "at_work"), FLAG),
        **dict.fromkeys(("answer_status", "answer_rpc_code"), NUMBER),
        "answer_media_type": NAME,
        "code": CODE,
        "operation": NAME,
        "request_ids": PAIRS,
    },
    RecordType.OPERATION_ACCEPTED: {"operation": NAME},
    RecordType.RECONCILED: {"finding": WORD, "by": WORD, "read_sha256": DIGEST, "code": CODE},
    RecordType.VERIFIED: {
        **_DECISION,
        **dict.fromkeys(("verdict", "source", "class"), WORD),
        "read_sha256": DIGEST,
        "code": CODE,
    },
    RecordType.RECOVERY_PLANNED: {
        **_DECISION,
        **dict.fromkeys(("recovery", "class", "refused"), WORD),
    },
    RecordType.HELD: {"code": CODE, "keep_lock": FLAG, "class": WORD},
    RecordType.RESOLVED: _OPERATOR,
    RecordType.SEALED: {
        **dict.fromkeys(("state", "class"), WORD),
        **dict.fromkeys(("code", "wire_code"), CODE),
        **dict.fromkeys(("detail_sha256", "result_sha256"), DIGEST),
        "key": NAME,
        "outcome_unknown": FLAG,
    },
    RecordType.DISPOSITION: {**_OPERATOR, "kind": WORD, "class": WORD, "disposition_sha256": DIGEST},
    RecordType.POLICY_ACTIVATED: {
        **dict.fromkeys(("revision", "bundle_revision", "signer", "signature_scope"), NAME),
        "engine": WORD,
        "tests": NUMBER,
        "bundle_sha256": DIGEST,
    },
    RecordType.POLICY_REFUSED: {"revision": NAME, "faults": NUMBER},
    RecordType.CONTRACT_ACTIVATED: {
        "operation": NAME,
        "environment": NAME,
        "version": NUMBER,
        "contract_sha256": DIGEST,
    },
    RecordType.UPSTREAM_ACTIVATED: {"name": NAME, "adapter": NAME, "origin": NAME, "config_sha256": DIGEST},
    RecordType.PRINCIPAL_CHANGED: {
        **dict.fromkeys(("id", "tenant", "owner", "organization"), NAME),
        "kind": WORD,
        "roles": NAMES,
        "disabled": FLAG,
    },
    RecordType.KEY_ADDED: _KEY,
    RecordType.KEY_RETIRED: {**_KEY, "toIndex": NUMBER},
    RecordType.KEY_REVOKED: {**_KEY, "toIndex": NUMBER},
    RecordType.STORE_PRUNED: {"what": WORD, "before_index": NUMBER, "older_than": TIME, "count": NUMBER},
    RecordType.DAEMON_STARTED: {"incarnation": NUMBER, "instance": NAME, "version": NAME, "after_clean_stop": FLAG},
    RecordType.DAEMON_STOPPED: {"incarnation": NUMBER},
}
"""Every field of every record that is written today, and what it may hold."""

OPTIONAL = frozenset(
    {
        "fromIndex",
        "keysetSha256",
        "stages",
        "refused",
        "toIndex",
        "refers_to",
        "message_sha256",
        "count",
        "since",
        "until",
    }
)
OF_A_DECISION = {None: (), 3: (*_DECISION, *_REFUSED_EFFECT), 8: tuple(_DECISION)}
"""By the stage of a refusal: what the decision leaves in it."""


def faults(record: Record) -> list[str]:
    """What in a record's body is missing, surplus, or something else than its kind: free text above all."""
    fields = {**BODIES[record.type], "stages": STAGES}
    found = [f"{name} is surplus" for name in record.body.keys() - fields.keys()]
    optional = OPTIONAL | (_undecided(record.stage) if record.type == RecordType.CALL_REFUSED else set())
    found += [f"{name} is missing" for name in fields.keys() - record.body.keys() - optional]
    found += [f"{name} is {value!r}" for name, value in record.body.items() if not _is(fields.get(name), value)]
    return [f"{record.type}: {fault}" for fault in sorted(found)]


def _undecided(stage: int | None) -> set[str]:
    return {*_DECISION, *_REFUSED_EFFECT, *_REFUSED_APPROVAL}.difference(OF_A_DECISION.get(stage, ()))


def _is(kind: Any, value: Any) -> bool:
    if isinstance(kind, re.Pattern):
        return isinstance(value, str) and kind.fullmatch(value) is not None
    if kind in (NUMBER, FLAG):
        return type(value) is (int if kind == NUMBER else bool)
    if kind in (CODES, NAMES):
        return isinstance(value, list) and all(_is(CODE if kind == CODES else NAME, member) for member in value)
    if kind == FLOOR:
        return value is None or (isinstance(value, dict) and all(_is(_FLOOR.get(k), v) for k, v in value.items()))
    if kind == STAGES:
        return isinstance(value, list) and all(len(pair) == 2 and _is(NUMBER, sum(pair)) for pair in value)
    if not isinstance(value, dict):
        return False
    if kind == FENCE:
        return value.keys() == {"incarnation", "counter"} and all(_is(NUMBER, v) for v in value.values())
    members = [text for pair in value.items() for text in pair]
    return (kind == PAIRS or value.keys() == {"type", "id"}) and all(_is(NAME, text) for text in members)
