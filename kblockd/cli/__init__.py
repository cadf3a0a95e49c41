"""Commands: ``kblockd`` for operators of the daemon, ``kblockctl`` for its callers.

Exit codes of both::

    0  done
    1  an error: refused, not reachable, not verified
    2  wrong usage
    3  not finished: pending approval, held, in progress (and: signed, not logged; undecided; not replayable)
    4  finished without the effect: denied, failed, rejected, expired, cancelled
    5  no answer came: the outcome is unknown until the call is repeated with its key
    6  ``kblockd policy diff`` alone: a decision on record would change
    75 ``kblockd serve`` alone: the daemon failed; start it again

Every command accepts ``--json``: one JSON document on standard output, pure ASCII, so that it cannot control the
terminal. Foreign text is never printed raw.

May not live here: gRPC (the client library has it), anything that decides.
"""
