"""Records as documents. What a test writes as a dictionary becomes a leaf without the types that it is read by.

So a test can also say what no ``Body`` would: a field that is missing, of another type, or of a release to come.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from kblockd.domain import ledger
from kblockd.domain.canonical import without_floats
from kblockd.domain.ledger.record import MAX_LEAF, RECEIPT_PREDICATE
from kblockd.domain.ledger.table import BODIES

__all__ = [
    "MAX_LEAF",
    "RECEIPT_PREDICATE",
    "TIMED",
    "VERSION",
    "WITHOUT_ROWS",
    "WRITES",
    "Record",
    "RecordType",
    "document",
    "filled",
    "leaves",
    "read",
    "typed",
]

VECTORS: Final = Path(__file__).parent / "vectors" / "leaves.jsonl"
VERSION: Final = "kblockd.record/1"
RecordType = enum.StrEnum(  # type: ignore[misc]  # made of the table, so that no name is forgotten
    "RecordType", {re.sub(r"(?<!^)(?=[A-Z])", "_", body.__name__).upper(): body.TYPE for body in BODIES}
)
WRITES: Final = {RecordType(body.TYPE): body.WRITES for body in BODIES}
WITHOUT_ROWS: Final = {type_ for type_, tables in WRITES.items() if not tables}
TIMED: Final = {RecordType(body.TYPE) for body in BODIES if "stages" in body.__struct_fields__}


@dataclass(frozen=True)
class Record:
    """One record; its body is the document."""

    type: Any
    at: str
    tenant: str = ""
    execution: str = ""
    attempt: int = 0
    stage: int | None = None
    body: Mapping[str, Any] = field(default_factory=dict)

    def leaf(self) -> bytes:
        """Its canonical form."""
        return without_floats({"v": VERSION, **{name: getattr(self, name) for name in _NAMES}, "type": str(self.type)})


_NAMES: Final = ("at", "tenant", "execution", "attempt", "stage", "body")


def leaves() -> list[bytes]:
    """The vectors: at least one leaf of each type."""
    return VECTORS.read_bytes().splitlines()


def filled(type_: Any, **fields: Any) -> dict[str, Any]:
    """A body that is read, in which only these fields matter."""
    example = next(read(leaf) for leaf in leaves() if read(leaf).type == type_)
    return {**example.body, **fields}


def typed(type_: Any, **fields: Any) -> Any:
    """The same as the code has it."""
    return ledger.read(Record(type_, "", body=filled(type_, **fields)).leaf()).body


def document(value: Any) -> Any:
    """A row as the document that it is on disk, with what is left out there because it has its default."""
    if isinstance(value, msgspec.Struct):
        members = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: document(found) for name, of in members if (found := getattr(value, of)) is not msgspec.UNSET}
    if isinstance(value, tuple):
        return [document(member) for member in value]
    return str(value) if isinstance(value, enum.Enum) else value


def read(leaf: bytes) -> Record:
    """A record from its leaf; a receipt has no body."""
    document = orjson.loads(leaf)
    if "v" in document:
        return Record(RecordType(document["type"]), *(document[name] for name in _NAMES))
    predicate = document["predicate"]
    return Record(RecordType("receipt"), predicate["issuedAt"], execution=predicate["executionId"], stage=16)
