"""What must hold between the keys of one contract. Each fault names the key to change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kblockd.domain import pointer
from kblockd.domain.contract import arguments, errors
from kblockd.domain.contract.fault import Fault, Path

if TYPE_CHECKING:
    from kblockd.domain.contract.model import ActionContract
    from kblockd.domain.contract.reading import Lookup

ROOTS: Final = ("args", "effect_key", "execution_id", "operation", "snapshot", "output")
PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

_ARGS: Final = frozenset({"args"})
_BEFORE_THE_EFFECT: Final = frozenset({"args", "execution_id"})
_WITHOUT_AN_ANSWER: Final = frozenset({"args", "effect_key", "execution_id", "operation", "snapshot"})
_ANY: Final = frozenset(ROOTS)
_REVEALABLE: Final = frozenset({"output", "snapshot"})
_META_KEY: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]+")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_RESERVED_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length", "content-type"}
    | {"content-encoding", "accept", "transfer-encoding", "te", "trailer", "upgrade"}
    | {"traceparent", "tracestate", "baggage"}
)


def faults(contract: ActionContract, *, stored: bool = False) -> list[Fault]:
    """Every fault between keys; empty for a contract that can be used, or that could be when it was ``stored``."""
    found = arguments.faults(contract.tool.arguments_schema, ("tool", "arguments_schema"))
    known_arguments = contract.tool.arguments_schema if not found else {}
    for part in (_effect_key, _reads, _lookups, _preflight, _execution, _verification):
        found.extend(part(contract))
    found.extend(errors.faults(contract.tool, stored=stored))
    found.extend(_pointers(contract, known_arguments))
    found.extend(_summary(contract, known_arguments))
    return found


def _effect_key(contract: ActionContract) -> Iterator[Fault]:
    key = contract.tool.effect_key
    at: Path = ("tool", "effect_key", "name")
    if key.place == "none":
        if key.name:
            yield Fault(at, "names a key that is not sent", "remove name, or say where it goes in effect_key.in")
    elif not key.name:
        yield Fault(at, "missing", f"name the {key.place} that carries the key")
    elif key.place == "meta" and not _META_KEY.fullmatch(key.name):
        yield Fault(at, "a _meta key needs a reverse-DNS prefix", "write it like dev.kblockd/effect-key")
    elif key.place == "header" and (not _HEADER.fullmatch(key.name) or key.name.lower() in _RESERVED_HEADERS):
        yield Fault(at, "no header that the key may travel in", "write it like Idempotency-Key")
    elif key.place == "argument" and key.name in contract.tool.arguments_schema.get("properties", {}):
        yield Fault(at, "callers can set this argument", "remove it from tool.arguments_schema; the daemon sets it")
    scope: Path = ("idempotency_scope",)
    if (contract.idempotency_scope == "none") != (key.place == "none"):
        yield Fault(scope, "does not fit tool.effect_key.in", "set both to none, or neither")


def _reads(contract: ActionContract) -> Iterator[Fault]:
    used: list[tuple[Path, str]] = [(("lookup", i, "tool"), entry.tool) for i, entry in enumerate(contract.lookup)]
    if contract.reads.snapshot:
        used.append((("reads", "snapshot", "tool"), contract.reads.snapshot.tool))
    if contract.reads.verify:
        used.append((("reads", "verify", "tool"), contract.reads.verify.tool))
    for path, tool in used:
        if tool == contract.tool.name:
            yield Fault(path, "the tool that has the effect is no read", "name a tool that only reads")


def _lookups(contract: ActionContract) -> Iterator[Fault]:
    for position, entry in enumerate(contract.lookup):
        at: Path = ("lookup", position)
        if entry.by == "effect_key" and contract.tool.effect_key.place == "none":
            yield Fault((*at, "by"), "the upstream never sees the effect key", "set tool.effect_key.in, or remove this")
        if not _asks_by(entry):
            yield Fault((*at, "arguments"), f"do not hold /{entry.by}", f"pass /{entry.by} to the tool")
        if entry.consistent == "eventual" and entry.absent_final_after_seconds is not None:
            next_step = "remove it, or declare consistent: strong"
            yield Fault((*at, "absent_final_after_seconds"), "proves nothing where reads lag", next_step)


def _asks_by(entry: Lookup) -> bool:
    return any(pointer.parse(text)[0] == entry.by for _, text in _templates(entry.arguments, ()))


def _preflight(contract: ActionContract) -> Iterator[Fault]:
    compared = contract.reads.snapshot is not None and contract.reads.snapshot.version is not None
    at: Path = ("preflight", "require_current_resource_version")
    if contract.preflight.require_current_resource_version and not compared:
        yield Fault(at, "no version to compare", "set reads.snapshot.version, or false")
    if compared and not contract.preflight.require_current_resource_version:
        yield Fault(at, "kblockd always compares reads.snapshot.version", "set true, or remove reads.snapshot.version")


def _execution(contract: ActionContract) -> Iterator[Fault]:
    execution = contract.execution
    if execution.request_timeout_seconds > execution.absolute_deadline_seconds:
        yield Fault(
            ("execution", "request_timeout_seconds"),
            f"{execution.request_timeout_seconds} s is longer than the absolute deadline of "
            f"{execution.absolute_deadline_seconds} s",
            "shorten it, or raise execution.absolute_deadline_seconds",
        )
    if execution.maximum_attempts > 1 and contract.recovery.transient_failure == "manual":
        yield Fault(
            ("execution", "maximum_attempts"),
            "a second attempt never comes while recovery.transient_failure is manual",
            "set 1, or recovery.transient_failure: retry_same_idempotency_key",
        )


def _verification(contract: ActionContract) -> Iterator[Fault]:
    verification, verify = contract.verification, contract.reads.verify
    tool: Path = ("verification", "authoritative_read_tool")
    if verification.authoritative_read_tool != (verify.tool if verify else None):
        yield Fault(tool, "differs from reads.verify.tool", "name the same tool in both, or null in both")
    if verification.required and verify is None:
        yield Fault(("verification", "required"), "nothing is read", "set reads.verify, or required: false")
    if verification.required and not verification.expected:
        yield Fault(("verification", "expected"), "no post-condition to prove", "say what must be true afterwards")
    bound = verification.maximum_duration_seconds
    for key in ("poll_interval_seconds", "consistency_delay_seconds"):
        value: int = getattr(verification, key)
        if value > bound:
            message = f"{value} s is longer than maximum_duration_seconds, {bound} s"
            yield Fault(("verification", key), message, "shorten it")


def _pointers(contract: ActionContract, schema: Mapping[str, Any]) -> Iterator[Fault]:
    for path, text, roots in _placed_pointers(contract):
        try:
            tokens = pointer.parse(text)
        except pointer.InvalidPointer as error:
            yield Fault(path, str(error), "correct the pointer")
            continue
        if not tokens or tokens[0] not in roots:
            words = ", ".join(f"/{root}" for root in ROOTS if root in roots)
            yield Fault(path, f"{text!r} points nowhere that is known here", f"start with one of {words}")
        elif tokens[0] == "effect_key" and contract.tool.effect_key.place == "none":
            yield Fault(path, "the upstream never sees the effect key", "set tool.effect_key.in, or use /args")
        elif tokens[0] in ("effect_key", "execution_id", "operation") and len(tokens) > 1:
            yield Fault(path, f"/{tokens[0]} is a string", "point at it, not into it")
        elif tokens[0] == "args" and not arguments.known_property(schema, tokens[1:]):
            yield Fault(path, f"tool.arguments_schema has no {text}", "declare the argument or correct the pointer")


def _placed_pointers(contract: ActionContract) -> Iterator[tuple[Path, str, frozenset[str]]]:
    """Every pointer into the contract's document with the roots that exist where it is resolved."""
    yield ("target", "id"), contract.target.id, _ARGS
    templates: list[tuple[Path, Any, frozenset[str]]] = [
        (("intent",), contract.intent, _ARGS),
        (("preconditions",), contract.preconditions, _ANY),
        (("verification", "expected"), contract.verification.expected, _ANY),
        (("verification", "tolerated"), contract.verification.tolerated, _ANY),
        (("verification", "prohibited"), contract.verification.prohibited, _ANY),
    ]
    if contract.reads.snapshot:
        templates.append((("reads", "snapshot", "arguments"), contract.reads.snapshot.arguments, _BEFORE_THE_EFFECT))
    if contract.reads.verify:
        templates.append((("reads", "verify", "arguments"), contract.reads.verify.arguments, _ANY))
    for position, entry in enumerate(contract.lookup):
        templates.append((("lookup", position, "arguments"), entry.arguments, _WITHOUT_AN_ANSWER))
    for at, template, roots in templates:
        for path, text in _templates(template, at):
            yield path, text, roots
    for position, text in enumerate(contract.reveal):
        if text:
            yield ("reveal", position), text, _REVEALABLE


def _templates(template: Any, at: Path) -> Iterator[tuple[Path, str]]:
    return pointer.pointers_in(template, at)


def _summary(contract: ActionContract, schema: Mapping[str, Any]) -> Iterator[Fault]:
    at: Path = ("summary",)
    if "{" in PLACEHOLDER.sub("", contract.summary) or "}" in PLACEHOLDER.sub("", contract.summary):
        yield Fault(at, "a brace without its partner", "write placeholders like {intent.NAME} or {target.id}")
    for name in PLACEHOLDER.findall(contract.summary):
        word, _, key = name.partition(".")
        if word == "target" and key in ("type", "id"):
            continue
        if word == "intent" and key and _has_intent(contract, schema, key):
            continue
        yield Fault(
            at, f"{{{name}}} is not known", "use {intent.NAME} with a key of intent, {target.id}, {target.type}"
        )


def _has_intent(contract: ActionContract, schema: Mapping[str, Any], key: str) -> bool:
    if contract.intent is None:
        return arguments.known_property(schema, (key,))
    return key in contract.intent
