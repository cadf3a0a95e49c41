"""``python -m kblockd`` and the script ``kblockd``."""

import gc

gc.disable()  # nothing that an import makes is garbage; looking for it takes an eighth of the start

from kblockd.cli.kblockd import main as _main  # noqa: E402 - after the line above


def main() -> None:
    """The command line."""
    gc.enable()
    _main()


if __name__ == "__main__":
    main()
