"""The three kinds of files, each read into a document and a model, with all faults."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from kblockd.config.document import Document, read
from kblockd.config.fault import ConfigurationFault, Place
from kblockd.config.model import DaemonFile
from kblockd.domain.contract import ActionContract, InvalidContract
from kblockd.domain.contract.parse import parse_model
from kblockd.paths import open_path
from kblockd.upstream.model import UpstreamConfig

Model = TypeVar("Model", bound=BaseModel)
SettingsModel = Callable[[str], type[BaseModel] | None]

_UPSTREAM_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Source(Generic[Model]):
    """One file: its document, its model (None if it has faults) and the faults."""

    document: Document
    model: Model | None
    faults: tuple[ConfigurationFault, ...]

    @property
    def file(self) -> Path:
        """The path of the file."""
        return self.document.file


def daemon_file(file: Path) -> Source[DaemonFile]:
    """kblockd.yaml."""
    return _source(DaemonFile, read(file))


def contracts(folder: Path) -> tuple[list[Source[ActionContract]], list[ConfigurationFault]]:
    """Every ``*.yaml`` of the folder, and the faults of the folder itself."""
    documents, faults = _documents(folder)
    return [_source(ActionContract, document) for document in documents], faults


def upstreams(folder: Path) -> tuple[list[Source[UpstreamConfig]], list[ConfigurationFault]]:
    """Every ``*.yaml`` of the folder; the file's name is the upstream's."""
    documents, faults = _documents(folder)
    for document in documents:
        if not _UPSTREAM_NAME.fullmatch(document.file.stem):
            message = "is not a valid name for an upstream"
            faults.append(ConfigurationFault(Place(document.file, 1, 1), (), message, "use a-z, 0-9, - and _"))
    return [_resolved(_source(UpstreamConfig, document, as_json=True)) for document in documents], faults


def settings_faults(source: Source[UpstreamConfig], settings_model: SettingsModel) -> Iterator[ConfigurationFault]:
    """The faults that the adapter's settings model reports, with the lines of the upstream's file."""
    if source.model is None or (model := settings_model(source.model.adapter)) is None:
        return
    try:
        parse_model(model, dict(source.model.settings), as_json=True)
    except InvalidContract as error:
        for fault in error.faults:
            yield source.document.fault(("settings", *fault.path), fault.message, fault.next_step)


def beside(file: Path, path: str | Path) -> Path:
    """Resolves a path relative to the file that contains it."""
    return file.parent.absolute() / path


def _source(model: type[Model], document: Document, *, as_json: bool = False) -> Source[Model]:
    if document.value is None:
        return Source(document, None, document.faults)
    parsed: Model | None = None
    faults = list(document.faults)
    try:
        parsed = parse_model(model, document.value, as_json=as_json)
    except InvalidContract as error:
        faults += [document.fault(f.path, f.message, f.next_step) for f in error.faults]
    return Source(document, None if faults else parsed, tuple(faults))


def _documents(folder: Path) -> tuple[list[Document], list[ConfigurationFault]]:
    """Opens each file beneath the folder: a link may lead to another place inside it, and nowhere else."""
    try:
        with open_path(folder) as top:
            files, faults = _files(folder, os.listdir(top.descriptor))
            return [read(file, partial(top.beneath, file.name)) for file in files], faults
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        return [], [ConfigurationFault(Place(folder, 1, 1), (), message, "correct the path in the configuration")]


def _files(folder: Path, listed: list[str]) -> tuple[list[Path], list[ConfigurationFault]]:
    names = sorted(folder / name for name in listed if not name.startswith("."))
    faults = [
        ConfigurationFault(Place(path, 1, 1), (), "is never read", "name it *.yaml, or move it elsewhere")
        for path in names
        if path.suffix in (".yml", ".json")
    ]
    files = [path for path in names if path.suffix == ".yaml"]
    if not files:
        message = "contains no *.yaml"
        faults.append(ConfigurationFault(Place(folder, 1, 1), (), message, "write one, or correct the path"))
    return files, faults


def _resolved(source: Source[UpstreamConfig]) -> Source[UpstreamConfig]:
    upstream = source.model
    if upstream is None:
        return source
    ca_file = beside(source.file, upstream.tls.ca_file) if upstream.tls.ca_file else None
    credentials = {name: _absolute(source.file, value) for name, value in upstream.credentials.model_dump().items()}
    changes: dict[str, Any] = {
        "tls": upstream.tls.model_copy(update={"ca_file": ca_file}),
        "credentials": upstream.credentials.model_copy(update=credentials),
    }
    return Source(source.document, upstream.model_copy(update=changes), source.faults)


def _absolute(file: Path, reference: str) -> str:
    scheme, _, path = reference.partition(":")
    return f"file:{beside(file, path)}" if scheme == "file" else reference
