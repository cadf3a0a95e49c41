"""The evidence for auditors: signed statements, keys and their verification.

Contains DSSE envelopes, the in-toto statements (RESULT, RECEIPT, APPROVAL, DISPOSITION), the key set and the key ring,
the key ceremonies (init, rotation, retirement) and the standalone ``verify_offline.py``. Every format is a public
standard. Nothing here uses the store or decides when to sign; the tree and its checkpoints live in ``kblockd.ledger``.
``verify_offline.py`` deliberately shares no code with the rest, so that it does not inherit its mistakes.
"""
