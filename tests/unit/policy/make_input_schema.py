"""The schema of ``input``: written here once, with the contract's part taken from its model.

    .venv/bin/python -m tests.unit.policy.make_input_schema

A level with ``additionalProperties: false`` holds exactly these keys; arguments, reads and answers of upstreams are
open, since their shape is the upstream's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kblockd.domain.contract import ActionContract

OUT = Path(__file__).parents[3] / "kblockd" / "policy" / "rego" / "schemas" / "input.json"

ANY: dict[str, Any] = {}
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}
YES_NO = {"type": "boolean"}
OPEN = {"type": "object", "additionalProperties": True}


def words(*allowed: str) -> dict[str, Any]:
    """One of these."""
    return {"type": "string", "enum": list(allowed)}


def listed(item: Mapping[str, Any]) -> dict[str, Any]:
    """An array of them."""
    return {"type": "array", "items": dict(item)}


def closed(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object with these keys and no other."""
    return {
        "type": "object",
        "properties": {name: dict(value) for name, value in properties.items()},
        "required": sorted(properties),
        "additionalProperties": False,
    }


def absent_or(value: Mapping[str, Any]) -> dict[str, Any]:
    """Null until it is known. As two types, not as ``anyOf``: OPA looks into the object only so."""
    return {**value, "type": [value["type"], "null"]}


def contract() -> dict[str, Any]:
    """``ActionContract.document``: without references, and without what only its parser needs.

    Keys that came later are there only where they are not at their defaults: ``tool.errors``, which is never null then,
    and ``numbers`` of a read.
    """
    model = ActionContract.model_json_schema(mode="serialization", by_alias=True)
    found: dict[str, Any] = _plain(model, model["$defs"])
    tool = found["properties"]["tool"]
    tool["required"].remove("errors")
    tool["properties"]["errors"] = tool["properties"]["errors"]["anyOf"][0]
    reads = found["properties"]["reads"]["properties"]
    for read in (reads["snapshot"]["anyOf"][0], reads["verify"]["anyOf"][0], found["properties"]["lookup"]["items"]):
        read["required"].remove("numbers")
    return found


def _plain(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_plain(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _plain(definitions[node["$ref"].rpartition("/")[2]], definitions)
    kept: dict[str, Any] = {}
    for name in ("type", "enum", "const", "anyOf", "items", "additionalProperties"):
        if name in node:
            kept[name] = _plain(node[name], definitions)
    if "properties" in node:
        kept["properties"] = {name: _plain(value, definitions) for name, value in node["properties"].items()}
        kept["required"] = sorted(node["properties"])
    return kept


def schema() -> dict[str, Any]:
    """Of ``kblockd.policy/1``."""
    target = closed(type=TEXT, id=TEXT)
    said = 'What kblockd asks every entry point about: see "Input" in config/policy/README.md.'
    named = {"description": said, "title": "input"}
    document = closed(
        v=words("kblockd.policy/1"),
        now=TEXT,
        principal=closed(id=TEXT, kind=TEXT, tenant=TEXT, owner=TEXT, roles=listed(TEXT)),
        method=TEXT,
        envelope=absent_or(_envelope()),
        action=absent_or(
            closed(
                type=TEXT,
                risk_tier=words("low", "medium", "high", "critical"),
                environment=TEXT,
                tool=TEXT,
                tool_version=TEXT,
                target=target,
                intent=ANY,
                digest=TEXT,
            )
        ),
        args=absent_or(OPEN),
        contract=absent_or(contract()),
        binding=absent_or(closed(upstream=TEXT, origin=TEXT, definition_sha256=TEXT, contract_sha256=TEXT)),
        approval=absent_or(_approval()),
        snapshot=ANY,
        read=ANY,
        outcome=absent_or(
            closed(
                **{"class": TEXT},
                code=TEXT,
                attempts=INTEGER,
                maximum_attempts=INTEGER,
                marker=YES_NO,
                irreversible=YES_NO,
                output=ANY,
                effect_key=TEXT,
            )
        ),
        finding=absent_or(closed(finding=TEXT, verdict=TEXT)),
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", **named, **document}


def _envelope() -> dict[str, Any]:
    texts = dict.fromkeys(
        (
            "schema_version",
            "run_id",
            "action_id",
            "requester",
            "agent",
            "tenant",
            "organization",
            "environment",
            "operation",
            "policy_revision",
            "approval_id",
            "approval_expires_at",
            "deadline",
            "cancellation",
            "compensation_ref",
        ),
        TEXT,
    )
    return closed(
        **texts,
        target=closed(type=TEXT, id=TEXT, version=TEXT),
        binding=closed(upstream=TEXT, server_version=TEXT, tool=TEXT, definition_sha256=TEXT),
        preconditions=OPEN,
        postconditions=OPEN,
        request_timeout_ms=INTEGER,
        maximum_attempts=INTEGER,
        evidence=listed(TEXT),
    )


def _approval() -> dict[str, Any]:
    approver = closed(id=TEXT, owner=TEXT, roles=listed(TEXT))
    return closed(
        id=TEXT,
        state=TEXT,
        count=INTEGER,
        roles=listed(TEXT),
        approvers=listed(approver),
        not_before=TEXT,
        not_after=TEXT,
    )


def text() -> str:
    """The file as it is checked in."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    OUT.write_text(text())
