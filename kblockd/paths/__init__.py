"""Opens trusted files safely and checks who else may write them.

    walk      opens a path component by component and records every folder, link and file on the way
    writers   checks the recorded steps: only root and the daemon's user may write them

May not live here: anything that knows what a file means.
"""

from kblockd.paths.walk import Opened, Step, open_path, steps_to
from kblockd.paths.writers import Unsafe, Writers

__all__ = ["Opened", "Step", "Unsafe", "Writers", "open_path", "steps_to"]
