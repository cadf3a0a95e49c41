"""The documentation that is generated from the tables is current, and says what the tables say."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

from kblockd.domain import diagram
from kblockd.domain.states import TERMINAL, TRANSITIONS, Phase, ResultClass, State
from tests.records import WRITES, RecordType

README = Path(diagram.__file__).with_name("README.md")
_ARROW = re.compile(r"^ +(\w+) --> (\w+): (\w+)$", re.M)


def test_the_readme_is_current() -> None:
    """Run ``python -m kblockd.domain.diagram`` and put its output between the marks."""
    text = README.read_text()
    begin, end = text.index(diagram.BEGIN), text.index(diagram.END)
    assert text[begin : end + len(diagram.END)] == diagram.document()


def test_the_command_prints_the_document() -> None:
    done = subprocess.run([sys.executable, "-m", "kblockd.domain.diagram"], capture_output=True, text=True, check=True)
    out = io.StringIO()
    diagram.main(out)
    assert done.stdout == out.getvalue() == f"{diagram.document()}\n"


def test_the_diagram_is_the_table() -> None:
    """Every transition once, and no other arrow but the beginning and the ends."""

    def node(place: tuple[State, Phase]) -> str:
        return place[1] or place[0]

    arrows = [(node(a), node(b), event) for a, events in TRANSITIONS.items() for event, b in events.items()]
    drawn = diagram.diagram()
    assert sorted(_ARROW.findall(drawn)) == sorted(arrows)
    others = {line.strip() for line in drawn.splitlines() if "-->" in line and not _ARROW.match(line)}
    assert others == {"[*] --> proposed", *(f"{state} --> [*]" for state in TERMINAL)}


def test_phases_are_drawn_inside_executing() -> None:
    lines = diagram.diagram().splitlines()
    inside = lines[lines.index("    state executing {") + 1 : lines.index("    }")]
    drawn = {word for line in inside for word in (line.split()[0], line.split()[2].rstrip(":"))}
    assert drawn == set(Phase) - {Phase.NONE, Phase.CANCELLING}


def test_every_record_is_in_the_table_of_rows() -> None:
    assert WRITES.keys() == set(RecordType)
    assert all(f"| `{type_}` |" in diagram.tables() for type_ in RecordType)


def test_the_readme_explains_every_state_phase_and_class() -> None:
    text = README.read_text()
    words = {*State, *Phase, *ResultClass} - {""}
    assert {word for word in words if f"`{word}`" not in text} == set()
