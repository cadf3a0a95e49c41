"""An action from the ledger: the row says what was agreed by digest, the payloads hold what the digests stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kblockd.admission.offload import offload
from kblockd.domain.canonical import canonical, reparse, sha256_hex, written
from kblockd.domain.contract import ActionContract, InvalidContract, derive_intent, parse_stored, tighten
from kblockd.domain.errors import Internal, Reason
from kblockd.domain.ledger import StoredUnreadable, rows
from kblockd.domain.ledger.rows import ExecutionRow
from kblockd.execution import envelopes
from kblockd.execution.action import Action
from kblockd.execution.journal import NOTHING, Written
from kblockd.execution.parts import Parts

STORED_CALL: Final = "kblockd.stored-call/1"


async def load_action(parts: Parts, row: ExecutionRow) -> Action:
    """With the contract that was agreed, from its payload where the configured one differs by now.

    Raises ``Internal`` when a payload that an open execution needs is gone, ``StoredUnreadable`` when this release
    cannot read one: then the execution ends by where it stands
    (kblockd/execution/README.md#what-is-stored-of-an-action).
    """
    data = await _payload(parts, row.id, row.call_sha256)
    return await offload(len(data), _action, row, await load_contract(parts, row), data)


def _action(row: ExecutionRow, contract: ActionContract, data: bytes) -> Action:
    call = reparse(data)
    if call["v"] != STORED_CALL:
        raise StoredUnreadable("the stored call")
    args = call["args"]
    return Action(
        execution_id=row.id,
        tenant=row.tenant,
        agent=row.agent,
        requester=row.requester,
        environment=row.environment,
        operation=row.operation,
        contract=contract,
        envelope=call["envelope"],
        args=args,
        args_sha256=sha256_hex(canonical(args)),
        target=row.target,
        intent=derive_intent(contract, args),
        twin=row.twin,
        fingerprint=row.fingerprint,
        caller_key=row.caller_key,
        limits=tighten(contract, envelopes.restore(call["envelope"])),
        tool_version=row.tool_version,
        definition_sha256=row.definition_sha256,
        action_sha256=row.action_sha256,
        origin=row.origin,
        effect=row.effect,
        observe_until=row.observe_until,
        not_after=row.not_after,
    )


async def load_contract(parts: Parts, row: ExecutionRow) -> ActionContract:
    """The contract that was agreed; raises ``Internal`` and ``StoredUnreadable`` as ``load_action``."""
    if (now := _configured(parts, row)) is not None:
        return now
    try:
        return parse_stored(reparse(await _payload(parts, "contract", row.contract_sha256)))
    except InvalidContract as invalid:
        raise StoredUnreadable(f"the contract that was agreed ({invalid.faults[0]})") from None


async def load_reveal(parts: Parts, row: ExecutionRow) -> Sequence[str]:
    """What the contract that was agreed lets its caller see: of a closed execution nothing else is needed of it, so a
    contract that this release could not begin with still shows what it showed."""
    if (now := _configured(parts, row)) is not None:
        return now.reveal
    document = reparse(await _payload(parts, "contract", row.contract_sha256))
    return tuple(document.get("reveal", ()))


def _configured(parts: Parts, row: ExecutionRow) -> ActionContract | None:
    now = parts.contracts.get((row.operation, row.environment))
    return now if now is not None and now.sha256 == row.contract_sha256 else None


async def _payload(parts: Parts, scope: str, digest: str) -> bytes:
    data = await parts.store.payload(rows.payload(scope, digest))
    if data is None:
        raise Internal(
            Reason.INTERNAL,
            f"the payload {digest[:12]}… that the execution needs has been deleted",
            next_step="an operator must resolve the execution",
            execution_id="" if scope == "contract" else scope,
        )
    return data


async def value_of(parts: Parts, execution_id: str, digest: str, own: Written = NOTHING) -> Any:
    """The value inside a salted payload, or None when it was never kept or has been deleted.

    ``own`` is what the run that asks has written itself.
    """
    if digest in own.payloads:
        return (await offload(len(own.payloads[digest]), written, own.payloads[digest]))["value"]
    data = await parts.store.payload(rows.payload(execution_id, digest)) if digest else None
    if data is None:
        return None
    parts.admission.answered(len(data))  # what is read costs, whether it is shown or whoever asked has gone
    return (await offload(len(data), reparse, data))["value"]
