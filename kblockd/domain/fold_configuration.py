"""The fold over what is configured (policy, contracts, upstreams, principals, keys), the daemon's lives, erasures.

Each of these records determines its row whole, so that it stands alone; a consumption is conditioned on the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kblockd.domain import rows
from kblockd.domain.records import Record, RecordType
from kblockd.domain.rows import Changes, Key, Read


def _activation(key_of: Callable[[Mapping[str, Any]], Key]) -> Callable[[Read, int, Record], Changes]:
    """Rows that one record determines whole: policy, contract, upstream, principal, daemon."""

    def rule(read_row: Read, index: int, record: Record) -> Changes:
        return [(key_of(record.body), {**record.body, "at": record.at, "records": [index]})]

    return rule


def _key_added(read_row: Read, index: int, record: Record) -> Changes:
    row = {**record.body, "state": "active", "records": [index]}
    return [(rows.key(record.body["kid"]), row), (rows.active_key(record.body["role"]), row)]


def _key_ended(read_row: Read, index: int, record: Record) -> Changes:
    """Retired or revoked; the record repeats what the row needs, so that it stands alone."""
    row = {**record.body, "state": str(record.type).partition(".")[2], "records": [index]}
    active = read_row(rows.active_key(record.body["role"]))
    changes: Changes = [(rows.key(record.body["kid"]), row)]
    if active and active["kid"] == record.body["kid"]:
        changes.append((rows.active_key(record.body["role"]), None))
    return changes


CONFIGURATION: Final[Mapping[RecordType, Callable[[Read, int, Record], Changes]]] = {
    RecordType.POLICY_ACTIVATED: _activation(lambda body: rows.policy()),
    RecordType.CONTRACT_ACTIVATED: _activation(lambda b: rows.contract(b["operation"], b["environment"])),
    RecordType.UPSTREAM_ACTIVATED: _activation(lambda b: rows.upstream(b["name"])),
    RecordType.PRINCIPAL_CHANGED: _activation(lambda b: rows.principal(b["id"])),
    RecordType.KEY_ADDED: _key_added,
    RecordType.KEY_RETIRED: _key_ended,
    RecordType.KEY_REVOKED: _key_ended,
    RecordType.DAEMON_STARTED: _activation(lambda body: rows.daemon()),
    RecordType.STORE_PRUNED: _activation(lambda b: rows.pruned(b["what"])),
}
