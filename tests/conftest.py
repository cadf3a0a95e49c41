"""What a run says beyond its dots: the counts of tests that judge a whole campaign."""

from __future__ import annotations

import pytest

from tests.counts import COUNTS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Each text that a test recorded under ``COUNTS``; in the parallel workers nobody would see it printed."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == COUNTS:
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)
