"""Policy tests count processes: only those that the test itself started."""

from __future__ import annotations

import pytest

from tests.contract.policy.support import forget_others


@pytest.fixture(autouse=True)
def _only_our_children() -> None:
    forget_others()
