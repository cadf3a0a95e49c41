"""What a run says beyond its dots (the counts of whole campaigns), and how properties are looked for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.counts import COUNTS

# How fast this machine makes or tries an example says nothing about the code.
settings.register_profile("kblockd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kblockd")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each text that a test recorded under ``COUNTS``; in the parallel workers nobody would see it printed."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == COUNTS:
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)
