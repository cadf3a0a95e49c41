"""Newest first, by the rows of the lists: what nobody may see, and what is in another state, is never read (AGT-07)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Final

from kblockd.domain.ledger import rows
from kblockd.domain.ledger.rows import TABLES, Row, RowKey
from kblockd.domain.principal import View
from kblockd.store.protocol import Key, Store

BATCH: Final = 32


@dataclass(slots=True)
class _Cursor:
    """Ids under one prefix, newest first, read some at a time."""

    store: Store
    prefix: RowKey[Row]
    after: Key | None
    ids: deque[str] = field(default_factory=deque)
    ended: bool = False

    async def newest(self) -> str | None:
        """The next id, left in its place; None at the end."""
        if not self.ids and not self.ended:
            found = await self.store.scan(self.prefix, after=self.after, limit=BATCH, reverse=True)
            self.ids.extend(str(key[-1]) for key, _, _ in found)
            self.ended = len(found) < BATCH
            self.after = found[-1][0] if found else self.after
        return self.ids[0] if self.ids else None


async def newest(
    store: Store, table: str, view: View, states: Collection[str], every: Collection[str], after: str
) -> AsyncIterator[str]:
    """Ids of ``table`` (execution or approval) below ``after`` ("": from the newest on), newest first, each once.

    ``states`` filters; empty means any of ``every``. It costs some reads a visible agent and state, and one an id. An
    id may have left its state since; whoever reads its row looks.
    """
    cursors = [
        _Cursor(store, prefix, (*prefix, after) if after else None)
        for prefix in await _prefixes(store, table, view, states, every)
    ]
    last: tuple[int, str] | None = None
    while True:
        heads = [(_order(head), cursor) for cursor in cursors if (head := await cursor.newest()) is not None]
        if not heads:
            return
        order, cursor = max(heads, key=lambda found: found[0])
        cursor.ids.popleft()
        if last is None or order < last:  # one that has moved to another state meanwhile comes twice
            last = order
            yield order[1]


def _order(text: str) -> tuple[int, str]:
    """As keys sort (``kblockd.store.schema``)."""
    return len(text.encode()), text


async def _prefixes(
    store: Store, table: str, view: View, states: Collection[str], every: Collection[str]
) -> list[RowKey[Row]]:
    if not states and "*" in view.tenants and "*" in view.agents:
        return [rows.under(TABLES[table], table)]  # all of them, and in order already
    shown = [who for who in await _agents(store) if view.shows(*who)]
    listed = f"listed_{table}"
    return [rows.under(TABLES[listed], listed, *who, state) for who in shown for state in sorted(states or every)]


async def _agents(store: Store) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    after: Key | None = None
    while True:
        scanned = await store.scan(rows.under(rows.ListedRow, "agent"), after=after, limit=256)
        found += [(str(key[1]), str(key[2])) for key, _, _ in scanned]
        if len(scanned) < 256:
            return found
        after = scanned[-1][0]
