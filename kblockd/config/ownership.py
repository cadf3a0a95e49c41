"""Only root and the daemon's user may write the files that the configuration names, and the folders above them
(LOC-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kblockd.config.document import Document
from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile
from kblockd.config.sources import Source, beside
from kblockd.domain.contract import Path as KeyPath
from kblockd.paths import Unsafe, Writers
from kblockd.policy.bundles.files import check_writers
from kblockd.upstream.model import UpstreamConfig

_OPA_FILES = ("command", "run_dir", "revisions", "token_file", "ca_file", "client_cert_file", "client_key_file")


@dataclass(frozen=True, slots=True)
class _Check:
    """One path to check, and the key that names it; ``judge`` raises ``Unsafe``, or ``OSError`` for a missing path
    (which its reader reports)."""

    document: Document
    key: KeyPath
    judge: Callable[[], None]


def faults(
    daemon: Source[DaemonFile],
    model: DaemonFile,
    contracts: Iterable[Source[Any]],
    upstreams: Iterable[Source[UpstreamConfig]],
    writers: Writers,
) -> Iterator[ConfigurationFault]:
    """One for each path that somebody else may write, however many files are below it."""
    reported: set[Path] = set()
    for check in _checks(daemon, model, [*contracts], [*upstreams], writers):
        try:
            check.judge()
        except OSError:
            continue
        except Unsafe as unsafe:
            if unsafe.path not in reported:
                reported.add(unsafe.path)
                message = f"{unsafe.path} {unsafe.message}, and so decide what is allowed"
                yield check.document.fault(check.key, message, unsafe.next_step)


def _checks(
    daemon: Source[DaemonFile],
    model: DaemonFile,
    contracts: list[Source[Any]],
    upstreams: list[Source[UpstreamConfig]],
    writers: Writers,
) -> Iterator[_Check]:
    for source in (daemon, *contracts, *upstreams):
        yield _Check(source.document, (), partial(writers.judge, source.document.steps))
    for key, path in _named(model):
        yield _Check(daemon.document, key, partial(writers.judge_path, beside(daemon.file, path)))
    # No group needs write access to a folder of sockets, not even a private one.
    strict = replace(writers, gids=frozenset())
    for position, listener in enumerate(model.listeners):
        folder = beside(daemon.file, listener.unix).parent
        yield _Check(daemon.document, ("listeners", position, "unix"), partial(strict.judge_path, folder))
    if model.policy.opa is None or model.policy.opa.url is None:  # a remote OPA gets its bundle elsewhere
        bundle = beside(daemon.file, model.policy.bundle)
        yield _Check(daemon.document, ("policy", "bundle"), partial(check_writers, bundle, writers))
    for source in upstreams:
        for key, file in _secrets(source.model):
            yield _Check(source.document, key, partial(writers.judge_path, file))


def _named(model: DaemonFile) -> Iterator[tuple[KeyPath, str]]:
    for name in ("data_dir", "actions", "upstreams"):
        yield (name,), getattr(model, name)
    if model.policy.verification is not None:
        for position, key in enumerate(model.policy.verification.keys):
            yield ("policy", "verification", "keys", position, "file"), key.file
    for name in _OPA_FILES:
        if path := getattr(model.policy.opa, name, None):
            yield ("policy", "opa", name), path


def _secrets(upstream: UpstreamConfig | None) -> Iterator[tuple[KeyPath, Path]]:
    if upstream is None:
        return
    if upstream.tls.ca_file is not None:
        yield ("tls", "ca_file"), upstream.tls.ca_file
    for name, reference in upstream.credentials.model_dump().items():
        kind, _, path = reference.partition(":")
        if kind == "file":
            yield ("credentials", name), Path(path)
