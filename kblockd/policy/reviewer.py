"""A bundle reviewed: its rules in a throw-away child, its annotations here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from kblockd.policy import throwaway
from kblockd.policy.bundle import Bundle
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.pool import EmbeddedLimits
from kblockd.policy.review.annotations import annotated
from kblockd.policy.review.findings import Finding
from kblockd.policy.review.shape import Shape

SCHEMA_FILE: Final = "input.json"


def schema_text() -> str:
    """The JSON schema of ``input``, for ``opa check --schema`` and for whoever writes policies."""
    return (files("kblockd.policy") / "schemas" / SCHEMA_FILE).read_text("utf-8")


async def review(bundle: Bundle, limits: EmbeddedLimits, *, server: bool = False) -> tuple[Finding, ...]:
    """All findings, by place. Rules that cannot be reviewed are a note: they may be Rego that only OPA reads.
    ``server``: OPA decides by it."""
    schema = json.loads(schema_text())
    found = annotated(bundle.modules, Shape(schema))
    try:
        header = {"op": "review", "schema": schema, "server": server}
        rules = await throwaway.ask(header, bundle, limits, "reviewing it", _findings)
    except PolicyRefused as refused:
        rules = tuple(_unread(str(fault)) for fault in refused.faults)
    return tuple(sorted({*found, *rules}))


def _findings(reply: Mapping[str, Any]) -> tuple[Finding, ...]:
    return tuple(Finding.from_json(row) for row in reply["findings"])


def _unread(why: str) -> Finding:
    step = "check its annotations and references with `opa check --schema`"
    return Finding(".", 0, 0, "note", "not-reviewed", f"the policy was not reviewed: {why}", step)
