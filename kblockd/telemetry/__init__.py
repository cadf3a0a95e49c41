"""OTel set-up, the span and attribute contract in one table, and the recorder that stages write tuples into.

Stages import ``kblockd.telemetry.recorder`` only. May not live here: anything that a stage waits for.
"""
