"""An approval as it was read just now, and the one commit by which it changes.

Whatever changes it relies on the same three rows: the approval and its execution, so that it lands either before the
consumption or not at all, and the principal's, so that one who is being disabled at this moment changes nothing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from kblockd.domain.canonical import canonical, sha256_hex
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.errors import NotFound, PermissionDenied, Reason
from kblockd.domain.ids import Ids
from kblockd.domain.ledger import rows
from kblockd.domain.ledger.closing import ExecutionRejected
from kblockd.domain.ledger.record import Body, Record
from kblockd.domain.ledger.rows import ApprovalRow, ExecutionRow
from kblockd.domain.principal import Principal, View
from kblockd.domain.stages import Stage
from kblockd.store.protocol import Append, AtVersion, Condition, Payload, Store, Ticket

STAGE = 4
LABEL = Stage.AWAIT_APPROVAL.label


@dataclass(frozen=True, slots=True)
class ApprovalRows:
    """The rows, and that they are as they were read."""

    row: ApprovalRow
    execution: ExecutionRow
    conditions: Sequence[Condition]

    async def commit(self, store: Store, records: Sequence[Append], payloads: Sequence[Payload]) -> Ticket:
        """Ordered when it returns; raises ``Conflict`` when one of the rows has changed since."""
        return await store.commit(self.conditions, records, payloads, label=LABEL)

    def append(self, body: Body, at: str, aux: bytes = b"") -> Append:
        """A record of this execution."""
        return Append(Record(body, at, self.row.tenant, self.row.execution, stage=STAGE).leaf(), aux)

    def rejected(self, at: str, code: str) -> Append:
        """The action cannot run any more."""
        return self.append(ExecutionRejected(code=code), at)

    def said(self, ids: Ids, reason: str) -> tuple[str, Payload]:
        """(digest, payload) of why: deletable, and not to be guessed by its digest."""
        data = canonical({"salt": ids.salt(), "kind": "reason", "value": reason})
        digest = sha256_hex(data)
        return digest, Payload(rows.payload(self.row.execution, digest), data)


def state_at(row: ApprovalRow, now: dt.datetime) -> str:
    """Of an approval; its time is looked at here, not only by a sweep (APR-04, APR-12)."""
    if row.state in ("pending", "approved") and now >= parse_rfc3339(row.not_after):
        return "expired"
    return row.state


async def visible(store: Store, view: View, approval_id: str) -> tuple[int, ApprovalRow]:
    """(version, row); raises ``NotFound`` for one that does not exist or that the caller may not see."""
    found = await store.get(rows.approval(approval_id)) if approval_id else None
    if found is None or not view.shows(found[1].tenant, found[1].agent):
        raise NotFound(Reason.NOT_FOUND, f"there is no approval {approval_id[:80]!r} that you may see")
    return found


async def asked(store: Store, principal: Principal, view: View, approval_id: str) -> ApprovalRows:
    """For ``principal`` to change. Raises ``NotFound`` or, for one that is disabled, ``PermissionDenied``."""
    version, row = await visible(store, view, approval_id)
    execution = await store.get(rows.execution(row.execution))
    if execution is None:
        raise NotFound(Reason.NOT_FOUND, f"the execution of {approval_id} does not exist")
    active = await store.get(rows.principal(principal.id))
    if active is None or active[1].disabled:
        raise PermissionDenied(
            Reason.PERMISSION_DENIED,
            f"principal {principal.id!r} is no longer active. Nothing was recorded.",
            next_step="an operator must activate the principal",
        )
    conditions = (
        AtVersion(rows.approval(approval_id), version),
        AtVersion(rows.execution(row.execution), execution[0]),
        AtVersion(rows.principal(principal.id), active[0]),
    )
    return ApprovalRows(row, execution[1], conditions)
