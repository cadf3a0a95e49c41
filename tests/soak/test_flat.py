"""A soak on a small scale, and the judgement over its rows: what grows is said, what is flat is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.soak.flat import ROWS, Row, soak, summary, unsteady

START = Row(0, 0.0, 1.0, 90.0, 90.0, 40.0, 1.0, 14, 40, 9, 0)
SETTLED = replace(START, executions=10_000, daemon_mib=200.0, peak_mib=250.0, store_mib=100.0, sockets=70, tables=3)
LAST = replace(SETTLED, executions=100_000, daemon_mib=250.0, peak_mib=270.0, store_mib=900.0, tables=12)


def test_what_fills_up_at_first_and_the_tables_of_the_store_are_no_growth() -> None:
    assert unsteady([START, SETTLED, LAST], 10_000) == []


@pytest.mark.parametrize(
    ("last", "word"),
    [
        (replace(LAST, peak_mib=276.0), "memory"),
        (replace(LAST, threads=15), "threads"),
        (replace(LAST, files=41), "files"),
        (replace(LAST, sockets=200), "sockets"),
    ],
)
def test_what_grows_is_said(last: Row, word: str) -> None:
    (found,) = unsteady([START, SETTLED, last], 10_000)
    assert word in found


def test_a_hundred_executions_give_a_table() -> None:
    """Each once, with nothing left behind; how memory grows is for the long run to say."""
    said: list[str] = []
    found = soak(100, 8, 100, said.append)
    assert found == []
    assert len(said) == 1 + ROWS + 1
    assert said[-2].split()[0] == "100"


def test_the_end_states_both_peaks_and_the_size_of_the_store() -> None:
    said = summary([START, SETTLED, LAST], 10_000)
    assert said.startswith("100000 executions: memory 250 MiB at most until 10000, 270 MiB after them;")
    assert said.endswith("store 9.2 KB an execution")
