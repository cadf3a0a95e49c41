"""Limits each principal's use of the daemon, so that one cannot slow down the others.

``Admission`` (``shares``) counts calls, bytes and records per principal, ``Slots`` is a fair semaphore, ``offload``
moves long work to threads beside the loop, and ``who`` knows the current principal. No I/O here, and no knowledge of
what is being counted.
"""

from kblockd.admission.shares import Admission
from kblockd.admission.slots import Slots
from kblockd.admission.who import on_behalf_of, principal

__all__ = ["Admission", "Slots", "on_behalf_of", "principal"]
