"""What an auditor holds in hand: signed statements, keys and their verification.

Here live DSSE envelopes, the in-toto statements (RESULT, RECEIPT, APPROVAL, DISPOSITION), the key set and the key ring,
the key ceremonies (init, rotation, retirement) and ``verify_offline.py``, which runs alone. Every format is a public
standard. Nothing here talks to the store or decides when something is signed; the tree and its checkpoints live in
``kblockd.ledger``. ``verify_offline.py`` shares no code with the rest on purpose: it must not inherit its mistakes.
"""
