"""Writes kblockd/upstream/hostile.md from the table: ``python -m tests.integration.hostile.document``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.harness import ROOT
from tests.integration.hostile.proofs import tables
from tests.integration.hostile.rows import FINAL_SECONDS, PATIENT_SECONDS, Expected, Row
from tests.integration.hostile.table import GROUPS

FILE: Final = ROOT / "kblockd" / "upstream" / "hostile.md"
_INTRODUCTION: Final = f"""# What a hostile upstream can do, and how the action ends

<!-- Written by `python -m tests.integration.hostile.document` from table.py and proofs.py beside it, which the tests
play against a real daemon and real adapters: change these, not this file. -->

Two attempts are allowed, an exchange may take ten seconds, the contract declares a strongly consistent lookup whose
absence is final {FINAL_SECONDS} s after the call ({PATIENT_SECONDS} s if an abandoned call may still be executed), and
an independent read must prove success. Unless a row says otherwise, only the first call meets the misbehaviour. The
upstream may do anything, but kblockd must never cause a second effect, report "nothing happened" untruthfully, report
an unproved success, start another attempt before a lookup is final, store a credential, or harm the daemon.

- *first attempt*: class and code of the attempt record, as proved by the first call alone.
  `failed_before_side_effect`: no byte left, or the contract declares that this error of the tool precedes any work;
  sent again at once.
  `unknown_outcome`: looked up by the effect key until the effect is present, or its absence is final and the call is
  sent again, or nothing can prove either and an operator must decide. `completed_unverified`: answered, but counted as
  a success only once it has been read back.
- *ends as*: state, result class and the caller's code.
- *attempts*: send markers in the ledger, all with one effect key. *calls*: requests that the upstream has read.
- *next*: the next action on the same upstream, which behaves again.
- *holds*: the cases and requirements that the row covers.
"""


def written() -> str:
    """The whole document."""
    behaviours = (part for title, rows in GROUPS.items() for part in _section(title, rows))
    return "\n".join([_INTRODUCTION, *behaviours, *tables()])


def _section(title: str, rows: tuple[Row, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| the upstream | adapter | first attempt | ends as | attempts | calls | effects | next | holds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    yield from (line for row in rows for line in _lines(row))
    yield ""


def _lines(row: Row) -> Iterator[str]:
    found = {adapter: row.expected(adapter) for adapter in ("http", "mcp")}
    said = {adapter: expected for adapter, expected in found.items() if expected is not None}
    if len(said) == 2 and said["http"] == said["mcp"]:
        said = {"http, mcp": said["http"]}
    for adapter, expected in said.items():
        yield _line(row, adapter, expected)


def _line(row: Row, adapter: str, expected: Expected) -> str:
    first = _words(expected.attempt, expected.code) or "none"
    cells = (
        row.does,
        adapter,
        first,
        _words(expected.state, expected.result, expected.end),
        str(expected.attempts),
        str(expected.calls),
        str(expected.effects),
        _words(expected.then) if expected.then.isupper() else expected.then,
        ", ".join(row.cases.split()),
    )
    return f"| {' | '.join(cells)} |"


def _words(*words: str) -> str:
    return " ".join(f"`{word}`" for word in words if word)


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
