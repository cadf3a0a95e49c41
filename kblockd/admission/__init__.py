"""What one principal may take of the daemon, so that the others do not notice: the table of shares, and who is meant.

Lives here: counting and waiting, without I/O. May not live here: what is counted. Whoever takes something asks
``Admission`` (``shares``) for it, or waits for its turn in ``Slots``, or ``offload``s long work to the threads beside
the loop.
"""

from kblockd.admission.shares import Admission
from kblockd.admission.slots import Slots
from kblockd.admission.who import on_behalf_of, principal

__all__ = ["Admission", "Slots", "on_behalf_of", "principal"]
