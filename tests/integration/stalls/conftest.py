"""One data directory for all stalls of a process; each test starts the daemon that it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.stalls.installed import Stalled, stalling


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stalled]:
    """The plugin is installed for this process and its daemons while the module's tests run."""
    with pytest.MonkeyPatch.context() as patch, stalling(tmp_path_factory.mktemp("stalling"), patch) as made:
        yield made
