"""Executions in great number: real ones of this store, written again under fresh identifiers by the store's commits.

Every record goes through the fold and into the tree as it would from the daemon, six records and their payloads in
one commit, so rows, counters and roots are what the ledger's own verification expects. What cannot be had this way:
signatures and digests of content, which are random in the copies, as if they were of something else.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kblockd.domain.ledger import fold
from kblockd.domain.ledger.rows import execution
from kblockd.ledger.merkle import MerkleTree
from kblockd.store.database import StoreView, open_view
from kblockd.store.protocol import Append, Payload, Ticket
from kblockd.store.rocks import RocksStore
from kblockd.store.schema import decode_key

_TOKEN: Final = re.compile(rb"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32})(?![0-9a-f])")
_TIME_DIGITS: Final = 12  # of an identifier: milliseconds, so that identifiers sort by time
_TEMPLATES: Final = 200
_TURN: Final = 250
_TURNS_AHEAD: Final = 4


class Text:
    """Bytes with holes where identifiers and digests stand."""

    def __init__(self, data: bytes, numbers: dict[bytes, int]) -> None:
        self._parts: list[bytes] = []
        self._holes: list[tuple[int, int]] = []
        end = 0
        for match in _TOKEN.finditer(data):
            number = numbers.get(match[0])
            if number is not None:
                self._parts += (data[end : match.start()], b"")
                self._holes.append((len(self._parts) - 1, number))
                end = match.end()
        self._parts.append(data[end:])

    def filled(self, tokens: Sequence[bytes]) -> bytes:
        """With these in the holes."""
        for place, number in self._holes:
            self._parts[place] = tokens[number]
        return b"".join(self._parts)


class Template:
    """One real execution: its records and payloads, and which of their tokens are its own."""

    def __init__(self, records: Sequence[Append], payloads: Sequence[Payload], own: Sequence[bytes]) -> None:
        numbers = {token: number for number, token in enumerate(own)}
        self._own = own
        self._records = [(Text(record.leaf, numbers), record.aux) for record in records]
        self._payloads = [
            (Text(str(one.key[1]).encode(), numbers), Text(str(one.key[2]).encode(), numbers), Text(one.data, numbers))
            for one in payloads
        ]
        self._identifiers = _identifiers(records)

    def copy(self, age: int, chance: random.Random) -> tuple[list[Append], list[Payload]]:
        """Under fresh identifiers, ``age`` milliseconds older than the original's."""
        tokens = [self._fresh(token, age, chance) for token in self._own]
        records = [Append(text.filled(tokens), aux) for text, aux in self._records]
        payloads = [
            Payload(("payload", scope.filled(tokens).decode(), digest.filled(tokens).decode()), data.filled(tokens))
            for scope, digest, data in self._payloads
        ]
        return records, payloads

    def _fresh(self, token: bytes, age: int, chance: random.Random) -> bytes:
        drawn = b"%0*x" % (len(token), chance.getrandbits(4 * len(token)))
        if token not in self._identifiers:
            return drawn
        return b"%0*x" % (_TIME_DIGITS, int(token[:_TIME_DIGITS], 16) - age) + drawn[_TIME_DIGITS:]


def _identifiers(records: Sequence[Append]) -> frozenset[bytes]:
    """Those tokens that are identifiers, which stand behind a kind and an underscore."""
    found = (re.findall(rb"[a-z]_([0-9a-f]{32})(?![0-9a-f])", record.leaf) for record in records)
    return frozenset(token for tokens in found for token in tokens)


def templates(data_dir: Path) -> list[Template]:
    """Executions of a store that nobody writes."""
    with open_view(data_dir / "store") as view:
        found = itertools.islice(view.rows(("execution",)), _TEMPLATES)
        stories = [_story(view, id_) for id_ in [str(key[1]) for key, _, _ in found]]
    tokens = [_tokens(records, payloads) for records, payloads in stories]
    return [Template(*story, own) for story, own in zip(stories, only_in_one(tokens), strict=True)]


def only_in_one(tokens: Sequence[set[bytes]]) -> list[list[bytes]]:
    """Of each set what no other has: what several executions share, such as a contract's digest, is not their own."""
    seen = Counter(token for found in tokens for token in found)
    return [sorted(token for token in found if seen[token] == 1) for found in tokens]


def _story(view: StoreView, id_: str) -> tuple[list[Append], list[Payload]]:
    indexes: set[int] = set()
    for key in (execution(id_), ("receipt", id_)):
        found = view.get(key)
        indexes.update(found[1].records if found else ())
    records = [record for index in sorted(indexes) if (record := view.leaf(index)) is not None]
    payloads = [Payload(decode_key(key), bytes(data)) for key, data in view.encoded(("payload", id_))]
    return records, payloads


def _tokens(records: Sequence[Append], payloads: Sequence[Payload]) -> set[bytes]:
    texts = [record.leaf for record in records] + [payload.data for payload in payloads]
    texts += [str(part).encode() for payload in payloads for part in payload.key]
    return {token for text in texts for token in _TOKEN.findall(text)}


async def fill(data_dir: Path, number: int, progress: Callable[[int], None]) -> None:
    """Adds that many copies to a store that was stopped in order, and stops it in order."""
    patterns = templates(data_dir)
    if not patterns:
        raise ValueError(f"{data_dir} holds no execution that could be copied")
    store = await RocksStore.open(data_dir, fold=fold, tree=MerkleTree())
    tickets: list[Ticket] = []
    chance = random.Random(store.size())  # the same every time, and never twice in one store
    try:
        for done, (records, payloads) in enumerate(_copies(patterns, number, chance), 1):
            tickets.append(await store.commit((), records, payloads))
            if done % _TURN == 0:
                await tickets[max(0, len(tickets) - _TURN * _TURNS_AHEAD)].durable()
                await asyncio.sleep(0)  # the group closes, also when nothing had to be waited for
                del tickets[: -_TURN * _TURNS_AHEAD]
                progress(done)
        for ticket in tickets[-1:]:
            await ticket.durable()
    finally:
        await store.close()


def _copies(
    patterns: Sequence[Template], number: int, chance: random.Random
) -> Iterator[tuple[list[Append], list[Payload]]]:
    """Oldest first."""
    for count in range(number):
        yield patterns[count % len(patterns)].copy(number - count, chance)
