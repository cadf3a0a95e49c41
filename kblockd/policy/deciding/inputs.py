"""The input of a query (config/policy/README.md#input), and how a recorded one is reassembled.

Most of an input is kept anyway, under digests that the records name: the call, the contract, snapshots, outputs, reads.
What is kept beside the record of a decision is the rest, with the digests of those; a few hundred bytes, classified
``restricted``, with a retention of its own. A reassembled input must have the recorded digest; one that cannot be
reassembled is reported, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kblockd.domain.canonical import canonical
from kblockd.domain.text import embedded, own, partly

INPUT: Final = "kblockd.policy/1"
KEPT: Final = "kblockd.kept-input/1"
RESTRICTED: Final = "restricted"
"""Neither shown by any RPC nor copied into telemetry: for policy diff and for an audit on the daemon's own machine."""

METHOD: Final = "/kblock.v1.ExecutionService/Execute"

CONDITIONS: Final = ("preconditions", "postconditions")
"""Of an envelope: what is foreign in it."""

Value = Callable[[str], Any]
"""The value inside the payload under a digest; raises what says that it is gone."""


class Question(dict[str, Any]):
    """An input as ``document`` makes it: what is foreign in it is known by its place."""

    def text(self, contract: bytes) -> bytes:
        """Its canonical form, around that of its contract; raises ``NotCanonical``."""
        ours = {
            "envelope": partly(self["envelope"], *CONDITIONS),
            "action": partly(self["action"], "intent"),
            "contract": orjson.Fragment(contract),
        }
        return own(partly({**self, **ours}, "args", "snapshot", "read", "outcome", "finding"))


def subject(
    *,
    operation: str,
    risk_tier: str,
    environment: str,
    tool: str,
    tool_version: str,
    target: Mapping[str, str],
    intent: Any,
    action_sha256: str,
    envelope: Mapping[str, Any],
    args: Any,
    contract: Mapping[str, Any],
    contract_sha256: str,
    upstream: str,
    origin: str,
    definition_sha256: str,
) -> dict[str, Any]:
    """What all questions about one execution have in common."""
    return {
        "envelope": dict(envelope),
        "action": {
            "type": operation,
            "risk_tier": risk_tier,
            "environment": environment,
            "tool": tool,
            "tool_version": tool_version,
            "target": dict(target),
            "intent": intent,
            "digest": action_sha256,
        },
        "args": args,
        "contract": contract,
        "binding": {
            "upstream": upstream,
            "origin": origin,
            "definition_sha256": definition_sha256,
            "contract_sha256": contract_sha256,
        },
    }


def document(
    about: Mapping[str, Any],
    *,
    now: str,
    principal: Mapping[str, Any],
    approval: Mapping[str, Any] | None = None,
    snapshot: Any = None,
    read: Any = None,
    outcome: Mapping[str, Any] | None = None,
    finding: Mapping[str, Any] | None = None,
) -> Question:
    """``input`` for an entry point; what is not known yet is null. ``about`` is a ``subject``."""
    return Question(
        {
            "v": INPUT,
            "now": now,
            "principal": principal,
            "method": METHOD,
            **about,
            "approval": approval,
            "snapshot": snapshot,
            "read": read,
            "outcome": outcome,
            "finding": finding,
        }
    )


def kept(asked: Mapping[str, Any], *, snapshot: str = "", read: str = "", output: str = "") -> bytes:
    """What of an input is kept nowhere else. ``snapshot``, ``read`` and ``output`` (of ``outcome``) are the digests of
    the payloads that hold those values; a value without one is kept here."""
    outcome = asked["outcome"]
    fields: dict[str, Any] = {
        "v": KEPT,
        "classification": RESTRICTED,
        "now": asked["now"],
        "principal": asked["principal"],
        "approval": asked["approval"],
        "snapshot": _reference(asked["snapshot"], snapshot),
        "read": _reference(asked["read"], read),
        "outcome": None if outcome is None else {**outcome, "output": _reference(outcome["output"], output)},
        "finding": asked["finding"],
    }
    # A repeated call may name the version of the target that the first one left open.
    fields["target_version"] = asked["envelope"]["target"]["version"] or None
    return own({name: value for name, value in fields.items() if value is not None})


def whole(asked: Mapping[str, Any]) -> bytes:
    """An input of which nothing is kept elsewhere: there is no execution that it is about."""
    return canonical({"v": KEPT, "classification": RESTRICTED, "input": asked})


def whole_again(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input that ``whole`` kept. Raises KeyError for what it never wrote."""
    if stored["v"] != KEPT:
        raise KeyError(stored["v"])
    asked: Mapping[str, Any] = stored["input"]
    return asked


def again(about: Mapping[str, Any], stored: Mapping[str, Any], value: Value) -> dict[str, Any]:
    """The input that ``kept`` stands for. Raises KeyError or TypeError for what ``kept`` never wrote, and what
    ``value`` raises. Whether it is the one that was asked only its digest says."""
    if stored["v"] != KEPT:
        raise KeyError(stored["v"])
    outcome = stored.get("outcome")
    if version := stored.get("target_version"):
        envelope = about["envelope"]
        about = {**about, "envelope": {**envelope, "target": {**envelope["target"], "version": version}}}
    return document(
        about,
        now=stored["now"],
        principal=stored["principal"],
        approval=stored.get("approval"),
        snapshot=_dereferenced(stored.get("snapshot"), value),
        read=_dereferenced(stored.get("read"), value),
        outcome=None if outcome is None else {**outcome, "output": _dereferenced(outcome["output"], value)},
        finding=stored.get("finding"),
    )


def _reference(value: Any, digest: str) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"payload": digest} if digest else {"value": embedded(value)}


def _dereferenced(reference: Mapping[str, Any] | None, value: Value) -> Any:
    if reference is None:
        return None
    return value(reference["payload"]) if "payload" in reference else reference["value"]
