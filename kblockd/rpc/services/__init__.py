"""One class a proto service; a method converts, delegates and converts back.

May not live here: anything that decides. The methods carry the names of the proto files (``kblockd.rpc.binding``).
"""
