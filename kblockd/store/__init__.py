"""Where commits become durable: the ``Store`` protocol and its embedded implementation over RocksDB.

``protocol`` is what everything above may import; ``rocks.RocksStore`` is chosen by the composition root alone.
``schema`` draws everything that is on disk. May not live here: anything that knows executions, approvals or trees;
the fold and the tree come in as parameters. ``tests/contract/store`` is the suite that every implementation passes.

What a damaged data directory comes to (``python -m tests.crash.damage.table`` prints the whole matrix):

- Lost or older than its head, changed, unreadable where the start looks, another's, read-only, in use: the start is
  refused with the numbers and the next step, and nothing is written (``opening``).
- Unreadable where the start does not look: the first read or compaction there fails the store, the daemon exits with
  75, and the start after that (it was no orderly stop) verifies everything; a difference takes away every commit, so
  nothing can be sent (``RocksStore.distrust``), while what is there can still be read.
- A write, flush or head that fails is neither yes nor no; the process ends and the next start decides from disk.
- Power that is lost takes what was not synced and nothing that was acknowledged.
- ``salvage`` reads what is left, for ``kblockd ledger export``.

What cannot be seen from inside, and needs a checkpoint that was kept elsewhere (``kblockd ledger verify
--checkpoint``): an older copy of store *and* head together, a change by somebody who also rewrites tree and head, and a
data directory that is gone as a whole, down to the marks of an earlier daemon. Old records that are damaged while the
daemon is stopped in order are found when they are read or verified, not at the start.
"""
