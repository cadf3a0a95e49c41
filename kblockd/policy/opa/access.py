"""Builds the ``Endpoint`` of an OPA from the configuration's files.

Does not import the client, which is slow to import: every command reads the configuration.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kblockd.paths import Unsafe, Writers

SECRETS: Final = ("token_file", "client_key_file")
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an OPA listens: a Unix ``socket``, or ``host`` and ``port`` with or without TLS.

    Raises ``ValueError`` for plain HTTP to anything but a loopback address: the server would be unauthenticated and the
    token exposed.
    """

    socket: str = ""
    host: str = "localhost"
    port: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.socket and self.tls is None and not is_loopback(self.host):
            raise ValueError("plain HTTP goes to a loopback address only; use https")


def is_exposed(secret: Path) -> bool:
    """Whether group or others may read it; raises ``OSError``."""
    return bool(secret.stat().st_mode & 0o044)


def is_loopback(host: str) -> bool:
    """Literal addresses only: a name may resolve elsewhere later."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class AccessRefused(Exception):
    """An access file is missing or invalid; the message names it and never quotes it."""


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """``url`` is scheme, host and port; files are None where they do not apply. ``writers``: who alone may write them
    and the folders above them; None to skip that check."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    writers: Writers | None = None

    def endpoint(self) -> Endpoint:
        """Reads the files as they are now; raises ``AccessRefused``. Blocks."""
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        try:
            return Endpoint(
                host=host,
                port=parts.port or (443 if secure else 80),
                tls=self._context() if secure else None,
                token=_token(self.token_file) if self.token_file else "",
            )
        except ValueError as error:
            raise AccessRefused(f"policy.opa.url: {error}") from None

    def seen(self) -> tuple[tuple[int, ...], ...]:
        """Changes when one of the files does; raises ``AccessRefused`` when somebody else may write one, or read a
        secret. Blocks.

        By the length, too: two writes within a tick of the file system's clock have one time.
        """
        self.check()
        return tuple(map(_stamp, filter(None, self._files())))

    def check(self) -> None:
        """The files as they are now; raises ``AccessRefused`` as ``seen``. Blocks."""
        secrets = [getattr(self, name) for name in SECRETS]
        for file in filter(None, self._files()):
            try:
                if self.writers is not None:
                    self.writers.judge_path(file)
                    if file in secrets and is_exposed(file):
                        raise AccessRefused(f"{file}: group or others may read it; chmod 600 and replace the secret")
            except Unsafe as unsafe:
                raise AccessRefused(str(unsafe)) from None
            except OSError as error:
                raise AccessRefused(f"{file}: cannot be read ({error.strerror})") from None

    def _files(self) -> tuple[Path | None, ...]:
        return self.token_file, self.ca_file, self.client_cert_file, self.client_key_file

    def _context(self) -> ssl.SSLContext:
        """With ``ca_file`` only that authority is trusted, not the system's as well."""
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        except OSError as error:
            raise AccessRefused(f"{self.ca_file}: no certificates in PEM ({error.strerror})") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_cert_file:
            try:
                context.load_cert_chain(str(self.client_cert_file), str(self.client_key_file), password="")
            except OSError as error:
                files = f"{self.client_cert_file} and {self.client_key_file}"
                raise AccessRefused(f"{files}: no certificate with its key in PEM ({error.strerror})") from None
        return context


def _token(file: Path) -> str:
    try:
        token = file.read_text("ascii", "replace").strip()
    except OSError as error:
        raise AccessRefused(f"{file}: cannot be read ({error.strerror})") from None
    if not _TOKEN.fullmatch(token):
        raise AccessRefused(f"{file}: must hold one token of visible ASCII characters")
    return token


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
