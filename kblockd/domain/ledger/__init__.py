"""Records and rows as types: what each record says, and what it makes of the rows.

A new type of record is one ``Body`` with its fields and its ``fold``, in the module of its topic, and its line in
``table``. A new row, or a field of one, is in ``rows``. Both are values of ``msgspec``: a missing field is an error of
the type checker where it is written, and of the decoder where it is read.
"""

from kblockd.domain.ledger.fold import fold
from kblockd.domain.ledger.record import Body, Record, identifier
from kblockd.domain.ledger.table import StoredUnreadable, envelope, read

__all__ = ["Body", "Record", "StoredUnreadable", "envelope", "fold", "identifier", "read"]
