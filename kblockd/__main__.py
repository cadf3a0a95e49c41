"""``python -m kblockd`` and the script ``kblockd``."""

import gc

gc.disable()  # imports create no garbage; collecting during them takes an eighth of the start

from kblockd.cli.kblockd import main  # noqa: E402 - after the line above

gc.enable()

if __name__ == "__main__":
    main()
