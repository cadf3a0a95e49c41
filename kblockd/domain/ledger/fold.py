"""The fold: what each record makes of the rows. Pure, total over the record types, and the only writer of rows.

The same function runs in the commit and in ``ledger verify``, so that rows cannot drift from records
(kblockd/README.md#the-one-idea). ``read_row`` sees the rows as they are after the group's earlier records.

A record that contradicts the rows does not fold, whatever the conditions of its commit said: a second claim of a deed,
a marker under another fence, a decision on an approval that waits for none.
"""

from __future__ import annotations

from kblockd.domain.ledger.listing import lists
from kblockd.domain.ledger.rows import Changes, Read
from kblockd.domain.ledger.table import read


def fold(read_row: Read, index: int, leaf: bytes) -> Changes:
    """The rows that the record at ``index`` changes; raises ``IllegalTransition`` or ValueError on a defect."""
    record = read(leaf)
    if not record.body.WRITES:
        return []
    changes = record.body.fold(read_row, index, record)
    return [*changes, *lists(read_row, index, changes)]
