"""kblockd: the last control boundary in front of an effect.

Layers, top to bottom; each imports only layers below it (enforced by import-linter)::

    cli        commands for people and scripts
    daemon     composition root, the only module that knows concrete parts
    client|rpc callers' library | services, conversion, identity; the only packages that speak gRPC
    authoring  what policy authors use: explain, test, review, diff; beside client and rpc
    config     YAML to frozen models
    execution  the pipeline: one module a stage
    approvals  requests, decisions, what an approver is shown
    upstream | policy | evidence   adapters | decision points | signed statements
    ledger     Merkle tree, checkpoints, proofs, verification
    store      records, rows, commits; RocksDB behind a protocol
    domain     pure: types, tables, fold, digests; no I/O, no clock, no randomness

Beside them: telemetry (spans); the nouns of the composition root: decision_point, policy_watch and policy_candidate
(engine and its revisions), ledger_store, observability, background (tasks), inquiries (``PolicyService``), ending,
watchdog, allocator; and the production implementations of injected parts: system, credentials, failpoints.
"""
