"""Options that several commands share."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

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


class Seconds(click.FloatRange):
    """A range of finite numbers; click's own comparison would accept ``nan`` in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises ``click.BadParameter``."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a valid duration in seconds.", param, ctx)
        return seconds


def owner_of(keys: Path) -> int:
    """The required owner of a folder of keys, for commands that only read it: root may read the daemon's."""
    user = os.geteuid()
    return keys.lstat().st_uid if user == 0 and keys.exists() else user
