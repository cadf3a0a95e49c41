"""Options that several ``kblockd`` commands share."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_CONFIG = "/etc/kblockd/kblockd.yaml"

config_option = click.option(
    "--config",
    "-c",
    envvar="KBLOCKD_CONFIG",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="kblockd.yaml [KBLOCKD_CONFIG].",
)
