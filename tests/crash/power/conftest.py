"""The library, compiled once a session into a temporary folder, and one data directory for the cases of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.daemon.story import World
from tests.crash.power.disk import Disk, build_shim
from tests.crash.power.powered import powered_world


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def powered(shim: Path) -> Iterator[tuple[World, Disk]]:
    with powered_world(shim) as found:
        yield found
