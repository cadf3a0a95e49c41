"""Stage 1: is the call well-formed, and what follows from it alone: contract, target, intent, digests, limits."""

from __future__ import annotations

from typing import Any

from kblockd.admission.offload import offload, size_of
from kblockd.domain import keys
from kblockd.domain.canonical import NotCanonical, canonical
from kblockd.domain.contract import ActionContract, check_arguments, derive_intent, derive_target, resolve, tighten
from kblockd.domain.envelope import Envelope, check_shape
from kblockd.domain.errors import FailedPrecondition, InvalidArgument, PermissionDenied, Reason
from kblockd.domain.pointer import PointerMissing
from kblockd.domain.stages import Stage
from kblockd.domain.text import Text, foreign
from kblockd.execution import pins
from kblockd.execution.action import Admitted, IncomingCall
from kblockd.execution.parts import Parts
from kblockd.execution.stages import stage


@stage(Stage.ADMIT)
async def admit(parts: Parts, call: IncomingCall) -> Admitted:
    """Raises ``InvalidArgument`` (nothing recorded) or ``FailedPrecondition`` for an identity or binding pin."""
    check_shape(call.envelope)
    contract = _contract(parts, call.envelope)
    _check_caller(contract, call)
    _check_conditions(contract, call.envelope)
    conditions = size_of([call.envelope.preconditions, call.envelope.postconditions])
    return await offload(len(call.envelope.arguments_json) + conditions, _derived, parts, contract, call)


def _derived(parts: Parts, contract: ActionContract, call: IncomingCall) -> Admitted:
    """Everything that costs time in proportion to the arguments."""
    envelope, caller = call.envelope, call.caller
    text = _arguments(parts, envelope)
    args = text.value
    check_arguments(contract, args)
    _check_read(contract, args)
    target, intent = derive_target(contract, args), derive_intent(contract, args)
    _check_target(envelope, target)
    _check_key(contract, envelope)
    who: dict[str, Any] = {"tenant": caller.tenant, "agent": caller.id}
    where: dict[str, Any] = {"environment": contract.environment, "operation": contract.operation}
    what: dict[str, Any] = {"tool": contract.tool.name, "target": target}
    return Admitted(
        caller=caller,
        envelope=envelope,
        trace=call.trace,
        contract=contract,
        args=text,
        target=target,
        intent=intent,
        fingerprint=keys.fingerprint(**who, **where, **what, args=text),
        caller_key=keys.caller_key(**who, key=envelope.caller_key) if envelope.has_caller_key else "",
        twin=keys.twin(tenant=caller.tenant, upstream=contract.tool.upstream, **what, intent=intent),
        limits=tighten(contract, envelope),
    )


def _check_conditions(contract: ActionContract, envelope: Envelope) -> None:
    """What no policy is told to look at would be kept for nothing (AGT-03)."""
    for name, given, declared in (
        ("preconditions", envelope.preconditions, contract.preconditions),
        ("postconditions", envelope.postconditions, contract.verification.expected),
    ):
        if given and not declared:
            where = "verification.expected" if name == "postconditions" else name
            raise InvalidArgument.field(
                f"envelope.{name}_json",
                f"the action contract of {contract.operation} declares no {where}; leave it out",
            )


def _check_caller(contract: ActionContract, call: IncomingCall) -> None:
    if call.caller.tenant == "*":
        raise PermissionDenied(
            Reason.PERMISSION_DENIED,
            "a principal of all tenants cannot execute: an action belongs to one tenant",
            next_step="call as a principal of the tenant",
        )
    pins.check_identity(call.envelope, call.caller)
    pins.check_binding(call.envelope, upstream=contract.tool.upstream, tool=contract.tool.name)


def _arguments(parts: Parts, envelope: Envelope) -> Text:
    """What is executed is the canonical form parsed again, never the bytes that came."""
    limit = parts.limits.arguments_bytes
    try:
        text = envelope.arguments or foreign(envelope.arguments_json, max_bytes=limit)
    except NotCanonical as error:
        raise InvalidArgument.field(f"envelope.arguments_json{error.at}", str(error)) from None
    conditions = [canonical(given) for given in (envelope.preconditions, envelope.postconditions) if given]
    size = sum(map(len, (text.data, *conditions)))
    if size > limit:  # 1e20 is four bytes as it comes and 21 as it is kept
        raise InvalidArgument.field(
            "envelope.arguments_json",
            f"{size} bytes in canonical form, preconditions and postconditions among them; at most {limit} are taken",
        )
    if envelope.arguments_sha256 and envelope.arguments_sha256 != text.sha256:
        raise FailedPrecondition(
            Reason.PIN_MISMATCH,
            f"envelope.arguments_sha256 is not the digest of the canonical arguments ({text.sha256}). "
            "Nothing was executed or consumed.",
            next_step="compute it over the RFC 8785 form, or leave it out",
        )
    return text


def _check_read(contract: ActionContract, args: Any) -> None:
    """The target can be read: an argument that the schema leaves to the caller may be needed for that."""
    if contract.reads.snapshot is None:
        return
    try:
        resolve(contract.reads.snapshot.arguments, {"args": args, "execution_id": ""})
    except PointerMissing as missing:
        field = missing.pointer.removeprefix("/args")
        raise InvalidArgument.field(f"envelope.arguments_json{field}", "is needed to read the target") from None


def _contract(parts: Parts, envelope: Envelope) -> ActionContract:
    contract = parts.contracts.get((envelope.operation, envelope.environment))
    if contract is None:
        known = sorted(f"{operation} in {environment}" for operation, environment in parts.contracts)
        raise InvalidArgument.field(
            "envelope.operation",
            f"no action contract for {envelope.operation!r} in environment {envelope.environment!r}; "
            f"known: {', '.join(known) or 'none'}",
            reason=Reason.UNKNOWN_TOOL,
        )
    return contract


def _check_target(envelope: Envelope, aim: dict[str, str]) -> None:
    if envelope.target.id != aim["id"] or envelope.target.type not in ("", aim["type"]):
        raise InvalidArgument.field(
            "envelope.target",
            f"names {envelope.target.type or aim['type']} {envelope.target.id!r}, "
            f"but the arguments name {aim['type']} {aim['id']!r}",
        )


def _check_key(contract: ActionContract, envelope: Envelope) -> None:
    if contract.execution.require_idempotency_key and not envelope.has_caller_key:
        raise InvalidArgument.field("envelope.caller_key", "is required by the action contract")
    if envelope.compensation_ref:
        raise FailedPrecondition(
            Reason.PIN_MISMATCH,
            "envelope.compensation_ref names a compensation, but the action contract has none. "
            "Nothing was executed or consumed.",
            next_step="leave it out",
        )
