"""OPA's own cases, read from the Go module in the module cache; nothing of them is kept here.

OPA reads its YAML itself: what a case means is then what OPA's own test run takes it to mean (YAML 1.1 would turn the
key ``on`` into true).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

VERSION = "v1.22.3"
OPA = Path(__file__).parents[2] / ".tools" / "bin" / "opa"
FOLDER = f"github.com/open-policy-agent/opa@{VERSION}/v1/test/cases/testdata/v1"
_READ = "{path: document | some path, text in input; document := yaml.unmarshal(text)}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case; ``note`` names it. ``want`` holds what OPA's own run demands, under the names of its fields."""

    note: str
    query: str
    modules: tuple[str, ...]
    data: Any
    input: Any
    has_input: bool
    term: bool
    want: Mapping[str, Any]


def read() -> list[Case]:
    """All of them, in the order of their files; skips (or fails in CI) where Go or OPA is missing."""
    folder = _cache() / FOLDER
    if not OPA.exists() or not folder.is_dir():
        _missing(f"OPA {VERSION} or its cases are missing: `make opa` builds it where Go is installed")
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.yaml"))}
    found = json.loads(_eval(_READ, texts))["result"][0]["expressions"][0]["value"]
    return [_case(row) for path in sorted(texts) for row in found[path]["cases"]]


def _case(row: Mapping[str, Any]) -> Case:
    return Case(
        note=row["note"],
        query=row["query"],
        modules=tuple(row.get("modules") or ()),
        data=row.get("data") or {},
        input=row.get("input"),
        has_input="input" in row,
        term="input_term" in row,
        want={name: value for name, value in row.items() if name.startswith(("want_", "strict_", "sort_"))},
    )


def _eval(query: str, document: Any) -> bytes:
    command = [str(OPA), "eval", "--format=json", "--stdin-input", query]
    return subprocess.run(command, input=json.dumps(document).encode(), capture_output=True, check=True).stdout


def _cache() -> Path:
    go = shutil.which("go")
    if go is None:
        _missing("Go is missing")
    return Path(subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, check=True, text=True).stdout.strip())


def _missing(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
