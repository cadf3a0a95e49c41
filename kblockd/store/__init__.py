"""Makes commits durable: the ``Store`` protocol and its embedded implementation over RocksDB.

``protocol`` is what everything above may import; only the composition root chooses ``rocks.RocksStore``. ``schema``
draws everything that is on disk. Nothing here knows executions, approvals or trees: the fold and the tree come in as
parameters. Every implementation passes the suite in ``tests/contract/store``.

How a damaged data directory ends (``python -m tests.crash.damage.table`` prints the whole matrix):

- Missing, behind its head, modified, unreadable in the range that the start checks, owned by another user, read-only
  or in use: the start is refused with the numbers and the next step, and nothing is written (``opening``).
- Unreadable outside that range: the first read or compaction there fails the store and the daemon exits with 75. The
  next start verifies everything, because the stop was not orderly. A difference blocks all commits, so nothing can be
  sent (``RocksStore.distrust``); reads still work.
- A failed write, flush or head leaves the commit unknown; the process ends and the next start decides from disk.
- A power loss takes unsynced data and nothing that was acknowledged.
- ``salvage`` reads the remains, for ``kblockd ledger export``.

Some damage is invisible from inside and shows only against a checkpoint stored elsewhere (``kblockd ledger verify
--checkpoint``): an older copy of store *and* head together, a change by somebody who also rewrites tree and head, and
the loss of the whole data directory including its markers. Damage to old records after an orderly stop shows when they
are read or verified, not at the start.
"""
