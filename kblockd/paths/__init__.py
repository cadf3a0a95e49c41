"""Files that decide: how they are opened, and who else may write them.

    walk      opens a path component by component, and remembers every folder, link and file that it met
    writers   judges what a walk met: nobody but root and the daemon's user may write it

May not live here: anything that knows what a file means.
"""

from kblockd.paths.walk import Opened, Step, open_path, steps_to
from kblockd.paths.writers import Unsafe, Writers

__all__ = ["Opened", "Step", "Unsafe", "Writers", "open_path", "steps_to"]
