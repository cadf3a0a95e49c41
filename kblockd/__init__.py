"""kblockd: the last control boundary in front of an effect.

Layers, top to bottom; each imports only what stands below it (held by import-linter)::

    cli        commands for people and machines
    daemon     composition root, the only place where concrete parts meet
    client|rpc callers' library | services, conversion, identity; the only ones that speak gRPC
    config     YAML to frozen models
    execution  the pipeline: one module a stage
    approvals  requests, decisions, what an approver is shown
    upstream | policy | evidence   adapters | decision points | signed statements
    ledger     Merkle tree, checkpoints, proofs, verification
    store      records, rows, commits; RocksDB behind a protocol
    domain     pure: types, tables, fold, digests; no I/O, no clock, no randomness

Beside them: telemetry (spans), decision_point (which policy engine), inquiries (what ``PolicyService`` asks), ending,
watchdog, allocator, and what production injects: system, credentials, failpoints.
"""
