"""The tables in the documents of the packages say what the code says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from kblockd.config.model import DaemonFile
from kblockd.domain.contract import ActionContract
from kblockd.domain.errors import Reason
from kblockd.upstream.model import UpstreamConfig
from tests import documents
from tests.documents import PARTS, ROOT, current
from tests.references import files


@pytest.mark.parametrize("name", PARTS)
def test_a_generated_part_is_current(name: str) -> None:
    """Else run ``python -m tests.documents``."""
    text = PARTS[name][0].read_text(encoding="utf-8")
    assert text == current(name, text)


def test_every_part_that_a_document_marks_is_known() -> None:
    marks = {
        (mark, path)
        for path in files()
        if path.suffix == ".md"
        for mark in re.findall(r"<!-- generated: (\w+) -->", path.read_text(encoding="utf-8"))
    }
    assert marks == {(name, path) for name, (path, _) in PARTS.items()}


def test_every_reason_is_in_the_table() -> None:
    table = "\n".join(documents.reasons())
    assert [reason for reason in Reason if f"`{reason}`" not in table] == []


def test_every_stage_names_a_module_that_is_there() -> None:
    modules = re.findall(r"\]\(([\w./]+)\)", "\n".join(documents.stages()))
    assert len(modules) == 19
    assert [module for module in modules if not (ROOT / "kblockd" / "execution" / module).exists()] == []


def test_every_decision_is_listed() -> None:
    """kblockd/README.md names each page below a folder ``decisions``."""
    text = (ROOT / "kblockd" / "README.md").read_text(encoding="utf-8")
    pages = [path for path in files() if path.parent.name == "decisions" and path.suffix == ".md"]
    assert len(pages) >= 5
    assert [path.name for path in pages if f"decisions/{path.name})" not in text] == []


def test_every_link_of_a_document_leads_somewhere() -> None:
    """Links to files; what is behind ``#`` is looked at by ``test_references``."""
    broken = [
        (str(path.relative_to(ROOT)), link)
        for path in files()
        if path.suffix == ".md"
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", path.read_text(encoding="utf-8"))
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert broken == []


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name
        for inner in _models(field.annotation):
            yield from _keys(inner)


@pytest.mark.parametrize(
    ("model", "shipped"),
    [
        (DaemonFile, "kblockd.yaml"),
        (ActionContract, "actions/payment.refund.create.yaml"),
        (UpstreamConfig, "upstreams/payments.yaml"),
    ],
)
def test_every_key_of_a_file_is_shown_or_explained(model: type[BaseModel], shipped: str) -> None:
    """In the shipped file, which comments it, or in config/README.md."""
    config = ROOT / "config"
    text = (config / "README.md").read_text(encoding="utf-8") + (config / shipped).read_text(encoding="utf-8")
    assert [key for key in _keys(model) if not re.search(rf"(?<![\w.]){key}(?!\w)", text)] == []
