"""A copy of the tree with a mutant in it, and a test run that sees nothing but the copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness import ROOT
from tests.mutants.table import Mutant

_PARTS = ("kblockd", "plugins", "tests", "config", "pyproject.toml")
_PLUGINS = ("plugins/mcp", "plugins/http")


class Copy:
    """``folder`` is a tree of its own: its packages come first on the path of every process of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ran = folder / "ran"
        for part in _PARTS:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / part, folder / part)

    def apply(self, mutant: Mutant) -> None:
        """Raises ValueError for an edit that no longer fits: the mutant must follow the code."""
        for edit in mutant.edits:
            edit.apply(self.folder)
        for file in {edit.file for edit in mutant.edits}:
            self._sign(self.folder / file)

    def run(self, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """The tests, by their ids, in a process of its own."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "--timeout", "120", *tests]
        places = [self.folder, *(self.folder / plugin for plugin in _PLUGINS)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
        env.pop("PYTEST_ADDOPTS", None)
        env = {name: value for name, value in env.items() if not name.startswith("PYTEST_XDIST")}
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    def ran(self) -> list[Path]:
        """The mutated files that some process of the runs has imported, by their own ``__file__``."""
        return [Path(line) for line in self._ran.read_text().splitlines()] if self._ran.exists() else []

    def _sign(self, file: Path) -> None:
        """Whoever imports it says so."""
        with file.open("a") as source:
            source.write(f'\nwith open({str(self._ran)!r}, "a") as _ran:\n    _ran.write(__file__ + "\\n")\n')
