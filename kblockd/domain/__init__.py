"""Pure domain: types, enums, the transition table, the fold, the action contract, canonical JSON, keys, errors.

May not live here: I/O, clocks, randomness, threads, anything that imports another package of kblockd.
"""
