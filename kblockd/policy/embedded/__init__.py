"""regorus in killable child processes.

Parent side (asyncio, never blocks the loop)::

    engine           EmbeddedEngine: a LoadingEngine over children
    pool             questions queue for children that hold one revision; a spare child stands by
    lane             one child and its queries in flight
    child            one killable process behind a socket
    throwaway        one request to a child that is killed afterwards
    document_reader  the documents of a bundle, read in a child

Child side (``worker`` is its main)::

    worker      limits itself, then reads frames until the stream ends
    answers     the operations: load, evaluate, check, documents
    modules     modules and data into an engine, one query out of it
    acceptance  what a bundle must pass before it may be activated: lint, compile, probes, its own tests

``frames`` serves both sides. This module stays empty: a child imports it before it has limited itself.
"""
