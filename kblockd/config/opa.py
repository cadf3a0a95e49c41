"""``policy.opa``: which keys go together, and the files that they name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile, OpaSection
from kblockd.config.sources import Source, beside
from kblockd.domain.contract import Path as KeyPath
from kblockd.paths import Writers
from kblockd.policy.opa.access import SECRETS, RemoteAccess, is_exposed, is_loopback

RUN_DIR_BYTES: Final = 60
"""Leaves room for a folder and a socket below it: a socket's path has at most 107 bytes."""
LEAST_MEMORY_MIB: Final = 256

_AT: Final[KeyPath] = ("policy", "opa")
_REMOTE: Final = ("revisions", "token_file", "ca_file", "client_cert_file", "client_key_file")
_TLS: Final = ("ca_file", "client_cert_file", "client_key_file")
_FILES: Final = ("token_file", "ca_file", "client_cert_file", "client_key_file")


def faults(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    """Refuses every key that would have no effect."""
    section = model.policy.opa
    if model.policy.engine == "embedded":
        if section is not None:
            message = "has no effect with engine: embedded"
            yield daemon.document.fault(_AT, message, "write null, or set policy.engine to opa")
        return
    if section is None:
        message = "is null, but policy.engine is opa"
        yield daemon.document.fault(_AT, message, "name a command and a run_dir, or a url and a revisions file")
        return
    yield from _remote(daemon, section) if section.url else _supervised(daemon, section)
    if section.command is not None and model.policy.memory_mib < LEAST_MEMORY_MIB:
        message = f"is {model.policy.memory_mib}: OPA needs at least {LEAST_MEMORY_MIB} to start"
        yield daemon.document.fault(("policy", "memory_mib"), message, "give it more memory")
    yield from _command(daemon, section)


def settings(file: Path, model: DaemonFile, writers: Writers) -> SupervisedOpa | RemoteOpa | None:
    """For a section without faults; ``writers``: the only users who may write files that are read again later."""
    section = model.policy.opa
    if section is None:
        return None
    command = beside(file, section.command) if section.command else None
    if section.url is None:
        return SupervisedOpa(command or Path(), beside(file, section.run_dir or ""))
    files = {name: beside(file, path) for name in _FILES if (path := getattr(section, name))}
    return RemoteOpa(
        RemoteAccess(section.url, **files, writers=writers), beside(file, section.revisions or ""), command
    )


def _supervised(daemon: Source[DaemonFile], section: OpaSection) -> Iterator[ConfigurationFault]:
    for key in ("command", "run_dir"):
        if getattr(section, key) is None:
            yield daemon.document.fault(
                _AT, f"has no {key}", "name the OPA binary and a folder for its socket, or a url"
            )
    for key in _REMOTE:
        if getattr(section, key) is not None:
            yield daemon.document.fault((*_AT, key), "has an effect only with url", "remove it")
    if section.run_dir is not None:
        length = len(os.fsencode(os.path.normpath(beside(daemon.file, section.run_dir))))
        if length > RUN_DIR_BYTES:
            message = f"has {length} bytes, more than the {RUN_DIR_BYTES} that leave room for a socket"
            yield daemon.document.fault((*_AT, "run_dir"), message, "use a shorter path, such as /run/kblockd/opa")


def _remote(daemon: Source[DaemonFile], section: OpaSection) -> Iterator[ConfigurationFault]:
    parts = urlsplit(section.url or "")
    if section.run_dir is not None:
        yield daemon.document.fault((*_AT, "run_dir"), "has an effect only without url", "remove it")
    if section.revisions is None:
        message = "has a url but no revisions: OPA could serve an unchecked policy"
        yield daemon.document.fault(_AT, message, "name the file that `kblockd policy check` writes")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        message = "is plain http to another machine: anybody in between could decide, and read the token"
        yield daemon.document.fault((*_AT, "url"), message, "use https, or an address such as http://127.0.0.1:8181")
    if (section.client_cert_file is None) != (section.client_key_file is None):
        yield daemon.document.fault(_AT, "has only one of client_cert_file and client_key_file", "name both or none")
    for key in _TLS:
        if parts.scheme == "http" and getattr(section, key) is not None:
            yield daemon.document.fault((*_AT, key), "has an effect only with https", "remove it")
    for key in _FILES:
        path = getattr(section, key)
        if path is None:
            continue
        file = beside(daemon.file, path)
        if not os.access(file, os.R_OK):
            yield daemon.document.fault((*_AT, key), f"{file} cannot be read", "correct the path")
        elif key in SECRETS and is_exposed(file):
            message = f"{file} may be read by group or others"
            yield daemon.document.fault((*_AT, key), message, f"chmod 600 {file} and replace the secret")


def _command(daemon: Source[DaemonFile], section: OpaSection) -> Iterator[ConfigurationFault]:
    if section.command is None:
        return
    program = beside(daemon.file, section.command)
    if not program.is_file() or not os.access(program, os.X_OK):
        yield daemon.document.fault((*_AT, "command"), f"{program} is not a program", "name the OPA binary by its path")
