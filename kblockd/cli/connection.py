"""The daemon that ``kblockctl`` connects to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from kblockd.client import Client


@dataclass(frozen=True, slots=True)
class DaemonAddress:
    """From ``--socket`` or ``--address``."""

    socket: str | None
    address: str | None

    def client(self, **options: Any) -> Client:
        """A blocking client; raises UsageError when neither was given."""
        if self.socket:
            return Client(f"unix:{click.format_filename(self.socket)}", **options)
        if self.address:
            return Client(self.address, **options)
        raise click.UsageError("give --socket PATH (or set KBLOCKD_SOCKET), or --address HOST:PORT in development")


connected = click.make_pass_decorator(DaemonAddress)
