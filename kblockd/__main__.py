"""``python -m kblockd`` and the script ``kblockd``."""

from kblockd.cli.kblockd import main

if __name__ == "__main__":
    main()
