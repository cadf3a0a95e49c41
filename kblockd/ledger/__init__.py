"""The ledger over a store: Merkle tree, checkpoints, proofs, verification.

``merkle`` hashes (RFC 6962), ``note`` signs text (C2SP signed-note), ``checkpoint`` signs tree heads
(C2SP tlog-checkpoint), ``tlog_proof`` writes proofs (C2SP tlog-proof@v1), ``ledger.Ledger`` serves them from a
``Store``, ``verify`` folds everything again, ``export`` gets records out of a damaged store. May not live here:
RocksDB, keys at rest, gRPC, or what a record means.
"""
