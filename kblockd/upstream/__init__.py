"""Everything between the pipeline and somebody else's server.

::

    adapter        the plugin API; all that a plugin may import besides kblockd.domain
    catalog        entry points to plugins, configuration to upstreams; Upstream and its preflight checks
    wrapper        GuardedAdapter: a plugin that cannot raise, hang, leak or answer what cannot be stored
    outcomes       what a plugin answered, checked, scrubbed and bounded
    scope          the running call: its exchanges are the proof that nothing was sent
    exchange       the guarded HTTP exchange; connection (HTTP/1.1, kept between calls), meter (counts, deadline), wire
                   (TCP, tls), body (bounded decoding) below it
    address_guard  resolve, check, connect to exactly what was checked; special_addresses is its table, generated from
                   IANA's registries
    credentials    Authorization values, read just before use; scrub takes them out of answers
    pins           reviewed definitions
    breaker        asked in preflight only; faults is what preflight may find
    model          the configuration of an upstream
    hostile.md     what a hostile upstream can do and how its action ends: the table that the tests play

What may not live here: anything about one protocol above HTTP (that is a plugin's), executions, records, policy,
gRPC, reading YAML. Nothing here retries: whether a call is made again is decided by ``kblockd.execution``.
"""
