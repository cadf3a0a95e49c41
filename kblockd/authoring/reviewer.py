"""A bundle's review: its rules in a child process, its annotations here."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from kblockd.authoring.embedded.processes import review_rules
from kblockd.authoring.review.annotations import annotated
from kblockd.authoring.review.findings import ReviewFinding
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused
from kblockd.policy.rego.shape import Shape

SCHEMA_FILE: Final = "input.json"


def schema_text() -> str:
    """The JSON schema of ``input``, for ``opa check --schema`` and for policy authors."""
    return (files("kblockd.policy.rego") / "schemas" / SCHEMA_FILE).read_text("utf-8")


async def review(bundle: Bundle, limits: EmbeddedLimits, *, server: bool = False) -> tuple[ReviewFinding, ...]:
    """All findings, by place. Rules that cannot be reviewed are a note: they may be Rego that only OPA parses.
    ``server``: an OPA server decides by it."""
    schema = json.loads(schema_text())
    found = annotated(bundle.modules, Shape(schema))
    try:
        rules = await review_rules(bundle, limits, schema, server=server)
    except BundleRefused as refused:
        rules = tuple(_unread(str(fault)) for fault in refused.faults)
    return tuple(sorted({*found, *rules}))


def _unread(why: str) -> ReviewFinding:
    step = "check its annotations and references with `opa check --schema`"
    return ReviewFinding(".", 0, 0, "note", "not-reviewed", f"the policy was not reviewed: {why}", step)
