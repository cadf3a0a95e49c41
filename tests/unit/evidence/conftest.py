"""Fixtures of the tests of evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.evidence.samples import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Keys, a sealed execution and its log."""
    return make_world(tmp_path)
