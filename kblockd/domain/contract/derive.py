"""What code derives from a contract and the arguments of a call: target, intent, summary, read arguments, what shows.

Pure functions. A value is put in once and never interpreted again, so that a foreign text that looks like a pointer
or a placeholder stays text. Escaping for the approver's eyes is the approvals' business, not this module's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from kblockd.domain import canonical, pointer
from kblockd.domain.contract.arguments import FIELD
from kblockd.domain.contract.checks import PLACEHOLDER
from kblockd.domain.contract.model import ActionContract
from kblockd.domain.contract.reading import Lookup
from kblockd.domain.errors import InvalidArgument, Reason, Violation

MAX_TARGET_ID: Final = 512

FaultKind = Literal["transient_failure", "unknown_outcome", "partial_completion", "verification_failure"]
_PERMITTED: Final[dict[str, frozenset[str]]] = {
    "retry_same_idempotency_key": frozenset({"retry", "containment", "manual"}),
    "reconcile": frozenset({"retry", "containment", "manual"}),
    "contain_then_evaluate": frozenset({"containment", "manual"}),
    "contain": frozenset({"containment"}),
    "manual": frozenset({"manual"}),
}


def validate_arguments(contract: ActionContract, args: Mapping[str, Any]) -> tuple[Violation, ...]:
    """Every wrong argument (R048), at most 16; empty when the arguments are allowed.

    The argument that carries the effect key is the daemon's alone: a caller's value there is never a key (C9).
    """
    found = contract.arguments.violations(args)
    key = contract.tool.effect_key
    if key.place == "argument" and key.name in args:
        found += (Violation(FIELD + pointer.build([key.name]), "the daemon sets this argument"),)
    return found


def check_arguments(contract: ActionContract, args: Mapping[str, Any]) -> None:
    """Raises ``InvalidArgument`` with the violations of ``validate_arguments``."""
    if violations := validate_arguments(contract, args):
        first = violations[0]
        raise InvalidArgument(
            Reason.INVALID_FIELD,
            f"{first.field}: {first.description}. Nothing was executed or consumed.",
            violations=violations,
            next_step="correct the arguments and call again",
        )


def derive_target(contract: ActionContract, args: Mapping[str, Any]) -> dict[str, str]:
    """{type, id} of what is changed; an envelope that names another one is refused.

    Raises ``InvalidArgument`` when the arguments name none: a string of 1 to 512 characters or an integer.
    """
    try:
        value = pointer.get({"args": args}, contract.target.id)
    except pointer.PointerMissing:
        value = None
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not 1 <= len(text) <= MAX_TARGET_ID or text != text.strip():
        raise InvalidArgument.field(
            FIELD + pointer.build(pointer.parse(contract.target.id)[1:]),
            f"names the target; must be an integer or 1 to {MAX_TARGET_ID} characters without outer blanks",
        )
    return {"type": contract.target.type, "id": text}


def derive_intent(contract: ActionContract, args: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two calls the same deed (twin guard, C10). An absent optional argument counts as null.

    Null and absent are the same deed on purpose: otherwise spelling out a null would get round the guard.
    """
    if contract.intent is None:
        return dict(args)
    return {key: _or_null(template, {"args": args}) for key, template in contract.intent.items()}


def summary(contract: ActionContract, target: Mapping[str, str], intent: Mapping[str, Any]) -> str:
    """What the approver reads, values unescaped: strings as they are, everything else as canonical JSON."""
    values = {"target.id": target["id"], "target.type": target["type"]}
    values |= {f"intent.{key}": _text(value) for key, value in intent.items()}
    return PLACEHOLDER.sub(lambda match: values.get(match[1], ""), contract.summary)


def resolve(template: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a read or lookup, ``expected`` and its like, with every pointer replaced.

    ``document`` has the keys {args, effect_key, execution_id, operation, snapshot, output}, those that are not known
    yet left out; raises ``pointer.PointerMissing`` when a pointer needs one of them.
    """
    return {key: pointer.resolve(member, document) for key, member in template.items()}


def reveal(pointers: Sequence[str], document: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller may see of ``{output, snapshot}``; nothing else ever shows, whatever the contract's ``reveal``
    says."""
    shown = {key: document[key] for key in ("output", "snapshot") if key in document}
    kept = pointer.project(pointers, shown)
    return kept if isinstance(kept, dict) else {}


def present(lookup: Lookup, answer: Any) -> bool | None:
    """Whether the lookup says that the effect exists; None, unprovable, for everything but a boolean."""
    try:
        value = pointer.get(answer, lookup.present)
    except pointer.PointerMissing:
        return None
    return value if isinstance(value, bool) else None


def permitted_recoveries(contract: ActionContract, fault: FaultKind) -> frozenset[str]:
    """Which of the six words ``kblock.recovery`` may choose after this kind of fault; another one is not followed.

    ``retry`` still needs proof of absence or of nothing sent, an attempt left and time (C14).
    """
    word: str = getattr(contract.recovery, fault)
    return _PERMITTED[word]


def _or_null(template: Any, document: Mapping[str, Any]) -> Any:
    """As ``pointer.resolve``, but null where a pointer leads nowhere."""
    if isinstance(template, dict):
        return {key: _or_null(member, document) for key, member in template.items()}
    if isinstance(template, list):
        return [_or_null(member, document) for member in template]
    try:
        return pointer.resolve(template, document)
    except pointer.PointerMissing:
        return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical.canonical(value).decode("utf-8")
