"""A ledger record: identifiers, codes, digests and numbers, never content (R503).

A leaf is the JCS of ``{v, type, at, tenant, execution, attempt, stage, body}``; the one exception is the receipt,
whose leaf is its DSSE payload (an in-toto Statement). What a person may have to delete is a payload row beside the
record, under its digest, which the record names.

Each type of record is a ``Body``: its fields, what it does to the rows, and the version that its leaves carry.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import ClassVar, Final

import msgspec

from kblockd.domain.ledger.rows import Changes, Read
from kblockd.domain.ledger.values import Number, Timings, Value

FORM: Final = "kblockd.record/"
"""In front of the version of the body."""
RECEIPT: Final = "receipt"
MAX_LEAF: Final = 65_535
RECEIPT_PREDICATE: Final = "https://kblockd.dev/receipt/v1"
_WORD: Final = re.compile(r"[\x21-\x7e]{1,256}")


def identifier(text: str) -> str:
    """A foreign identifier as a record may hold it: a short printable word as it is, else its digest (R503)."""
    if not text or _WORD.fullmatch(text):
        return text
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Body(Value, frozen=True):
    """What one type of record says.

    A change of the fields that is more than a new one with a default is a new ``VERSION``: the old form stays as a
    class of its own, whose ``upgraded`` gives the new one.
    """

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    WRITES: ClassVar[tuple[str, ...]] = ()
    """The tables whose rows it may write or remove; none: it is on record and nothing more."""

    def fold(self, read: Read, index: int, record: Record) -> Changes:
        """What the record at ``index`` makes of the rows; raises ``IllegalTransition`` or ValueError on a defect."""
        return []

    def upgraded(self) -> Body:
        """The same in the newest form."""
        return self

    def timed(self, stages: Timings) -> Body:
        """With the stages that ended since the commit before, in a type that says so."""
        return msgspec.structs.replace(self, stages=stages) if "stages" in self.__struct_fields__ else self

    def timings(self) -> Timings:
        """What ``timed`` put in."""
        return getattr(self, "stages", msgspec.UNSET) or ()


class Timed(Body, frozen=True):
    """The body of a stage's commit: it says which stages ended since the commit before, and how long they took."""

    stages: Timings | msgspec.UnsetType = msgspec.UNSET


class WithDecision(Timed, frozen=True, kw_only=True):
    """The body of a record that rests on a decision of policy; what has a default an older daemon did not keep."""

    policy_engine: str
    policy_revision: str
    decision_id: str
    input_sha256: str
    input_payload: str = ""
    policy_us: Number
    reasons: tuple[str, ...] = ()


class Record(Value, frozen=True):
    """One record; ``stage`` is the pipeline's number, or None outside the pipeline."""

    body: Body
    at: str
    tenant: str = ""
    execution: str = ""
    attempt: int = 0
    stage: int | None = None

    @property
    def type(self) -> str:
        """Its name in the ledger, such as ``execution.sent``."""
        return self.body.TYPE

    def leaf(self) -> bytes:
        """The bytes that the tree hashes.

        Raises ValueError above ``MAX_LEAF``, for a body that could not be read back (a float, say: units are whole in
        records, so that a row folds to the same bytes for ever), and for a receipt, which brings its own leaf.
        """
        if self.body.TYPE == RECEIPT:
            raise ValueError("a receipt brings its own leaf")
        body = _encode(self.body)
        _decoder(type(self.body)).decode(body)
        version = f"{FORM}{self.body.VERSION}"
        raw = msgspec.Raw(body)
        members = (self.at, self.attempt, raw, self.execution, self.stage, self.tenant, self.body.TYPE, version)
        data = _encode(Envelope(*members))
        if len(data) > MAX_LEAF:
            raise ValueError(f"{self.type}: a record of {len(data)} bytes, at most {MAX_LEAF} are possible")
        return data


class Envelope(Value, frozen=True):
    """What is around every body, in the order of the canonical form."""

    at: str
    attempt: Number
    body: msgspec.Raw
    execution: str
    stage: Number | None
    tenant: str
    type: str
    v: str


_encode: Final = msgspec.json.Encoder(order="sorted").encode


@functools.cache
def _decoder(body: type[Body]) -> msgspec.json.Decoder[Body]:
    return msgspec.json.Decoder(body)
