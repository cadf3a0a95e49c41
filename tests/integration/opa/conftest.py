"""The upstream that the daemons of these tests call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upstreams.payments import PaymentsServer


@pytest.fixture(scope="session")
def payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    """The server that all tests of this process share."""
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server
