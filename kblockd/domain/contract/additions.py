"""Keys that came later. Where one has its default, a contract's document is what it was before there was such a key,
digest and all: what an older ledger agreed on stays what was agreed on (UPG-03).

A key says so where it stands: ``Annotated[Numbers, ADDED]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from kblockd.domain.contract.words import ADDED


def without_additions(part: BaseModel, document: dict[str, Any]) -> dict[str, Any]:
    """The document of ``part``, changed in place: each added key that has its default is left out."""
    for name, field in type(part).model_fields.items():
        key, value = field.alias or name, getattr(part, name)
        if ADDED in field.metadata and value == field.default:
            del document[key]
        else:
            for inner, inside in _parts(value, document[key]):
                without_additions(inner, inside)
    return document


def _parts(value: Any, document: Any) -> Iterator[tuple[BaseModel, dict[str, Any]]]:
    if isinstance(value, BaseModel):
        yield value, document
    elif isinstance(value, tuple):
        for member, inside in zip(value, document, strict=True):
            yield from _parts(member, inside)
