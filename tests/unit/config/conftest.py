"""A folder with a complete configuration that loads, to be changed one key at a time."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kblockd.config import Configuration, ConfigurationError, ConfigurationFault, document, load, sources

SHIPPED = Path(__file__).parents[3] / "config"
DAEMON = "kblockd.yaml"
CONTRACT = "actions/payment.refund.create.yaml"
UPSTREAM = "upstreams/payments.yaml"
VALUES: dict[str, dict[str, Any]] = {name: document.read(SHIPPED / name).value for name in (DAEMON, CONTRACT, UPSTREAM)}
WRITTEN: dict[tuple[str, str], str] = {}


def written(name: str, value: dict[str, Any]) -> str:
    """The value as YAML; most values are the shipped ones, which are written once."""
    key = (name, repr(value))
    if key not in WRITTEN:
        stream = io.StringIO()
        YAML().dump(value, stream)
        WRITTEN[key] = stream.getvalue()
    return WRITTEN[key]


@dataclass
class Folder:
    """The three shipped documents as plain values, written to ``path`` when loaded; tools are pinned."""

    path: Path
    files: dict[str, dict[str, Any]]

    def load(self, **options: Any) -> Configuration:
        """Writes the files and loads them."""
        for name in self.files:
            self.write(name)
        return load(self.path / DAEMON, **options)

    def write(self, name: str) -> Path:
        """One file."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(name, self.files[name]))
        return file

    def own_faults(self, name: str) -> list[ConfigurationFault]:
        """Those that one file has by itself."""
        file = self.write(name)
        if name == DAEMON:
            return list(sources.daemon_file(file).faults)
        found, _ = sources.contracts(file.parent) if name == CONTRACT else sources.upstreams(file.parent)
        return [fault for source in found for fault in source.faults]

    def faults(self, **options: Any) -> list[ConfigurationFault]:
        """Those of the refused start; the test fails when the start is not refused."""
        with pytest.raises(ConfigurationError) as caught:
            self.load(**options)
        return list(caught.value.faults)

    def line(self, name: str, path: tuple[str | int, ...]) -> int:
        """Where ruamel's own round-trip loader sees the key (or element), counting from 1."""
        node = YAML().load(self.path / name)
        for part in path[:-1]:
            node = node[part]
        last = path[-1]
        where = node.lc.key(last) if isinstance(last, str) else node.lc.item(last)
        return int(where[0]) + 1


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    files = copy.deepcopy(VALUES)
    for pin in files[UPSTREAM]["tools"].values():
        pin["definition_sha256"] = "0" * 64
    files[DAEMON]["data_dir"] = "data"
    return Folder(tmp_path, files)


@pytest.fixture
def change(folder: Folder) -> Callable[[str, str, Any], None]:
    """Sets one key, such as ``clocks.lease_ttl_seconds`` or ``listeners.0.unix``."""

    def put(name: str, path: str, value: Any) -> None:
        node: Any = folder.files[name]
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            node = node[part]
        node[last] = value

    return put
