"""``python -m tests.crash.damage.table``: the damage matrix as a table, from real runs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.crash.damage.assess import Finding, Start, assess, check
from tests.crash.damage.damages import MATRIX
from tests.crash.damage.estate import make_estate
from tests.crash.power.disk import build_shim


def main() -> None:
    """Prints a row for each damage; the last column says whether it is what was wanted."""
    table = Table("damage", "the daemon", "ledger verify", "export", "as wanted", show_lines=True)
    with tempfile.TemporaryDirectory() as folder, make_estate(build_shim(Path(folder))) as estate:
        for damage in MATRIX:
            finding = assess(estate, damage)
            table.add_row(damage.name, _daemon(finding), _first(finding.verify_said), _lost(finding), _wanted(finding))
    Console(width=200, markup=False).print(table)


def _daemon(finding: Finding) -> str:
    if finding.start is Start.SERVES:
        return f"starts: {finding.served}"
    if finding.start is Start.FAILED:
        said = finding.said.partition("the daemon must end: ")[2]
        return "exits with 75: " + re.sub(r"/tmp/kb-[^/]*/", "…/", said.partition(" Next step")[0])
    said = finding.said.partition("kblockd refuses to start:\n")[2]
    return "refuses: " + re.sub(r"/tmp/kb-[^/]*/", "…/", said.partition(" Next step")[0].strip())


def _first(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"/tmp/kb-[^/]*/", "…/", lines[-1] if lines else "")[:200]


def _lost(finding: Finding) -> str:
    return "every record" if finding.lost == 0 else f"all but {finding.lost}, which are told"


def _wanted(finding: Finding) -> str:
    try:
        check(finding)
    except AssertionError as error:
        return f"NO: {str(error)[:300]}"
    return "yes"


if __name__ == "__main__":
    main()
