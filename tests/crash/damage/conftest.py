"""The estate, made once a session and worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.damage.estate import Estate, make_estate
from tests.crash.power.disk import build_shim


@pytest.fixture(scope="session")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    with make_estate(build_shim(tmp_path_factory.mktemp("shim"))) as made:
        yield made
