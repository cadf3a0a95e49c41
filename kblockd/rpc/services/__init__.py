"""One class per proto service; each method converts, delegates and converts back.

May not live here: anything that decides. The methods are named as in the proto files (``kblockd.rpc.binding``).
"""
