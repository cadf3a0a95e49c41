"""Foreign text cannot write a row: what is folded is marked, and never at the margin."""

from __future__ import annotations

import dataclasses
import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from kblockd.approvals.quoting import quote
from kblockd.cli import tables
from kblockd.cli.lines import CONTINUED, Fields, Line
from tests.unit.rpc.fakes import APPROVAL

WIDTHS = (40, 80, 132)


def printed(*parts: RenderableType, width: int = 80) -> list[str]:
    """The lines that a terminal of this width gets."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return stream.getvalue().splitlines()


FORGED = "x" + " " * 200 + "apr_0000  approved  low  2026-12-01 00:00Z"


@pytest.mark.parametrize("width", WIDTHS)
def test_apv_06_a_title_with_200_blanks_forges_no_row_of_the_list(width: int) -> None:
    """The blanks are shown, and each line at the margin is the daemon's own."""
    view = dataclasses.replace(APPROVAL, summary=f"Create {quote(FORGED)}")
    lines = printed(*tables.approvals([view]), width=width)
    text = "".join(line.strip().removeprefix(CONTINUED) for line in lines)
    assert "x␠×200apr_0000" in text
    margin = [line for line in lines if not line.startswith(" ")]
    assert [line.split("  ")[0] for line in margin] == ["approval", view.approval_id]
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", ["y" * 500, "漢" * 300, "a b " * 200, "requester  local:lead, agent a, tenant t " * 9])
def test_apv_06_what_is_folded_is_marked_in_its_column(width: int, text: str) -> None:
    """In the view of one approval only names stand at the margin, whatever the values hold."""
    view = dataclasses.replace(
        APPROVAL, summary=f"Create {quote(text)}", target_id=text, arguments_json=json.dumps({"memo": text}).encode()
    )
    fields = tables.approval(view)[0]
    assert isinstance(fields, Fields)
    names = [name for name, _ in fields.rows]
    lines = printed(fields, width=width)
    assert [line.split(" ")[0] for line in lines if not line.startswith(" ")] == names
    assert sum(line.lstrip(" ").startswith("↪ ") for line in lines) > 3
    assert all(cell_len(line) <= width for line in lines)


def test_nothing_is_lost_by_folding() -> None:
    text = "".join(chr(0x4E00 + n) if n % 3 else "ab" for n in range(200))
    lines = printed(Line(Text(text), 4), width=33)
    assert "".join(line.removeprefix("    " + CONTINUED) for line in lines) == text
    assert all(line.startswith("    " + CONTINUED) for line in lines[1:])


def test_what_fits_is_left_as_it_is() -> None:
    assert printed(Line(Text("short")), Line(Text("")), width=20) == ["short", ""]


def test_apv_06_runs_of_blanks_in_arguments_are_shown_and_the_indentation_stays() -> None:
    view = dataclasses.replace(APPROVAL, arguments_json=json.dumps({"title": "a" + " " * 200 + "b"}).encode())
    lines = printed(tables.approval(view)[0], width=100)
    assert any(line.endswith('  "title": "a␠×200b"') for line in lines), lines


def test_the_view_shows_target_version_roles_and_what_the_floor_raised() -> None:
    text = "\n".join(printed(*tables.approval(APPROVAL), width=200))
    assert 'order "A-1", at version "1" when it was asked for' in text
    assert "2 needed, each of another owner and with one of the roles finance and with one of the roles legal" in text
    assert "raised" in text
    assert "approval_floor.high raised it to 2 owners" in text
    unread = dataclasses.replace(APPROVAL, target_version="", target_version_note="not read (UPSTREAM_TIMEOUT)")
    assert "version unknown: not read (UPSTREAM_TIMEOUT)" in "\n".join(printed(*tables.approval(unread), width=200))
