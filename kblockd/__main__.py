"""``python -m kblockd`` and the script ``kblockd``."""

import gc

gc.disable()  # nothing that an import makes is garbage; looking for it takes an eighth of the start

from kblockd.cli.kblockd import main  # noqa: E402 - after the line above

gc.enable()

if __name__ == "__main__":
    main()
