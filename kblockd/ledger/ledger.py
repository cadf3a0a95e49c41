"""The ledger as it is served: records, checkpoints and proofs over what is durable.

Everything comes through ``Store``, so any store will do. A checkpoint is signed only over a size that the store calls
durable: a crash can lose a checkpoint, never take back one that was handed out (kblockd/ledger/README.md#checkpoint).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kblockd.domain.ledger.rows import Row, RowKey, indexes
from kblockd.domain.signing import Signer
from kblockd.ledger import checkpoint, merkle, note
from kblockd.ledger.checkpoint import TreeHead
from kblockd.ledger.merkle import Range
from kblockd.ledger.tlog_proof import TlogProof
from kblockd.store.protocol import Key, Store

MAX_READ: int = 1000


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One durable record: its place, the bytes that the tree hashes, and what stands beside it."""

    index: int
    leaf: bytes
    aux: bytes


@dataclass(frozen=True, slots=True)
class SignedHead:
    """A tree head and the note that signs it."""

    head: TreeHead
    note: str


class Ledger:
    """Read-only. ``signers`` gives the log keys that are active now, two while a key rotates; ``nodes`` are the tree's
    ``recent``, so that a proof of what was just written reads nothing back."""

    def __init__(
        self,
        store: Store,
        origin: str,
        signers: Callable[[], Sequence[Signer]],
        nodes: dict[Key, bytes] | None = None,
    ) -> None:
        """Raises ValueError for an origin that cannot name a note key."""
        self._store = store
        self._signers = signers
        self.origin = note.check_name(origin)
        self._nodes = {} if nodes is None else nodes  # a complete subtree never changes
        self._latest: tuple[SignedHead, tuple[str, ...]] | None = None

    def size(self) -> int:
        """Number of durable records."""
        return self._store.size()

    async def checkpoint(self) -> SignedHead:
        """The newest signed head: the last one again while the size and the keys are the same.

        Raises OSError when a key cannot be used, ``StoreFailed``.
        """
        size = self._store.size()
        signers = self._signers()
        keys = tuple(signer.key_id for signer in signers)
        if self._latest is not None and self._latest[0].head.size == size and self._latest[1] == keys:
            return self._latest[0]
        signed = self._signed(TreeHead(self.origin, size, await self.root(size)), signers)
        self._learn(signed, keys)
        return signed

    def sign_head(self, size: int, root: bytes) -> Callable[[], None] | None:
        """In the thread that has just synced this head: answers what makes it the newest checkpoint, for the loop to
        call once it knows that so much is durable. None when a key cannot be used: whoever asks then is told so."""
        signers = self._signers()
        try:
            signed = self._signed(TreeHead(self.origin, size, root), signers)
        except OSError:
            return None
        return partial(self._learn, signed, tuple(signer.key_id for signer in signers))

    def _signed(self, head: TreeHead, signers: Sequence[Signer]) -> SignedHead:
        return SignedHead(head, checkpoint.sign(head, signers))

    def _learn(self, signed: SignedHead, keys: tuple[str, ...]) -> None:
        if self._latest is None or self._latest[0].head.size <= signed.head.size:
            self._latest = (signed, keys)

    def _covering(self, index: int) -> SignedHead | None:
        """The last one signed, while its keys are the active ones: no need to sign one for each record."""
        if self._latest is None or self._latest[0].head.size <= index:
            return None
        keys = tuple(signer.key_id for signer in self._signers())
        return self._latest[0] if self._latest[1] == keys else None

    async def root(self, size: int) -> bytes:
        """The root over the first ``size`` records; raises ValueError when so many are not durable."""
        self._check_size(size)
        return await self._hash((0, size))

    async def inclusion(self, index: int, size: int) -> list[bytes]:
        """The path of a record in the tree of ``size``; raises ValueError when it is not in it."""
        self._check_size(size)
        return [self._known(span) or await self._hash(span) for span in merkle.inclusion_ranges(index, size)]

    async def consistency(self, old: int, new: int) -> list[bytes]:
        """The proof that the tree only grew from ``old`` to ``new`` records; raises ValueError for sizes not there."""
        self._check_size(new)
        return [await self._hash(span) for span in merkle.consistency_ranges(old, new)]

    async def proof(self, index: int, under: SignedHead | None = None) -> TlogProof:
        """A record's proof under a checkpoint, by default the last that covers it; raises ValueError when it is not
        durable."""
        signed = under or self._covering(index) or await self.checkpoint()
        path = await self.inclusion(index, signed.head.size)
        return TlogProof(index, tuple(path), signed.note)

    async def read(self, first: int, limit: int = MAX_READ) -> list[LedgerEntry]:
        """At most ``limit`` durable records from ``first`` on, in order."""
        end = min(self._store.size(), first + min(limit, MAX_READ))
        return await self.read_all(range(first, end))

    async def read_all(self, indexes: Sequence[int]) -> list[LedgerEntry]:
        """These records, for example those that a row lists; raises ValueError when one is not durable."""
        entries = []
        for index in indexes:
            record = await self._store.leaf(index)
            if record is None:
                raise ValueError(f"record {index} is not in the ledger of {self._store.size()}")
            entries.append(LedgerEntry(index, record.leaf, record.aux))
        return entries

    async def read_rows(self, *prefixes: RowKey[Row]) -> list[LedgerEntry]:
        """The records that the rows under these prefixes list, in order: the story of one execution."""
        listed: set[int] = set()
        for prefix in prefixes:
            after: Key | None = None
            while scanned := await self._store.scan(prefix, after=after, limit=MAX_READ):
                after = scanned[-1][0]
                for _, _, row in scanned:
                    listed.update(indexes(row))
        return await self.read_all(sorted(listed))

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._store.size():
            raise ValueError(f"a tree of {size}: the ledger has {self._store.size()} durable records")

    def _known(self, span: Range) -> bytes | None:
        """Of a complete subtree that is remembered, as all are but one at the end of the tree."""
        width = span[1] - span[0]
        return None if width & (width - 1) else self._nodes.get(("node", width.bit_length() - 1, span[0] // width))

    async def _hash(self, span: Range) -> bytes:
        hashes = []
        for node in merkle.nodes_of(span):
            key = merkle.node_key(node)
            hashes.append(self._nodes.get(key) or await self._read_node(key))
        return merkle.fold_right(hashes)

    async def _read_node(self, key: Key) -> bytes:
        value = await self._store.raw(key)
        if value is None:
            raise ValueError(f"the tree node at level {key[1]}, index {key[2]} is missing")
        if len(self._nodes) >= merkle.NODES_REMEMBERED:
            self._nodes.clear()
        self._nodes[key] = value
        return value
