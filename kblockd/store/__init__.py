"""Where commits become durable: the ``Store`` protocol and its embedded implementation over RocksDB.

``protocol`` is what everything above may import; ``rocks.RocksStore`` is chosen by the composition root alone.
``schema`` draws everything that is on disk. May not live here: anything that knows executions, approvals or trees;
the fold and the tree come in as parameters. ``tests/contract/store`` is the suite that every implementation passes.
"""
