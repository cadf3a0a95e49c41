"""Everything between the pipeline and an upstream server.

::

    adapter        the plugin API; the only module besides kblockd.domain that a plugin may import
    catalog        entry points to plugins, configuration to upstreams; Upstream and its preflight checks
    wrapper        GuardedAdapter: a plugin behind it cannot raise, hang, leak or return an unstorable answer
    outcomes       checks, scrubs and bounds a plugin's answer
    scope          the running call: its exchanges are the proof that nothing was sent
    exchange       the guarded HTTP exchange; below it connection (HTTP/1.1, pooled), meter (counts, deadline), wire
                   (TCP, tls) and body (bounded decoding)
    address_guard  resolves a name, checks the addresses and connects to exactly those; special_addresses is its table,
                   generated from IANA's registries
    credentials    Authorization values, asked for just before use; scrub removes them from answers
    pins           reviewed definitions
    breaker        consulted in preflight only; faults are preflight's errors
    model          the configuration of an upstream
    hostile.md     what a hostile upstream can do and how its action ends: the tests play this table

May not live here: anything about one protocol above HTTP (that belongs in a plugin), executions, records, policy, gRPC,
reading YAML. Nothing here retries: ``kblockd.execution`` decides whether a call is repeated.
"""
