"""``.manifest`` of a bundle: its own revision, and the part of the tree that it may define."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kblockd.policy.bundles.files import MANIFEST
from kblockd.policy.faults import BundleFault, BundleRefused, refusal

Segments = tuple[str, ...]

_EVERYTHING: Final = ((),)
_PACKAGE: Final = re.compile(
    r'(?:\s|#[^\n]*(?:\n|\Z))*package\s+([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\["(?:[^"\\\n]|\\.)*"\])*)(?![\w.\[])', re.A
)
_PART: Final = re.compile(r'\.(\w+)|\[("(?:[^"\\\n]|\\.)*")\]', re.A)


class _File(BaseModel):
    """The supported keys. Any other key refuses the bundle, because OPA might act on it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    revision: Annotated[str, Field(max_length=1024)] = ""
    roots: list[str] = Field(default=[""])
    rego_version: int = 1
    file_rego_versions: dict[str, int] = Field(default={})
    wasm: Annotated[list[Any], Field(max_length=0)] = Field(default=[])
    metadata: dict[str, Any] = Field(default={})


@dataclass(frozen=True, slots=True)
class Manifest:
    """``revision`` is the bundle's own name for itself; ``roots`` are paths below ``data``, () is all of it."""

    revision: str = ""
    roots: tuple[Segments, ...] = _EVERYTHING

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Manifest:
        """``document`` is None for a bundle without a manifest; raises ``BundleRefused``."""
        if document is None:
            return cls()
        try:
            file = _File.model_validate(document)
        except ValidationError as error:
            rows = ((".".join(map(str, row["loc"])), row["msg"]) for row in error.errors())
            faults = [BundleFault(MANIFEST, 0, 0, f"{key}: {why}", "take it out, or correct it") for key, why in rows]
            raise BundleRefused(faults) from None
        if {file.rego_version, *file.file_rego_versions.values()} != {1}:
            raise refusal(MANIFEST, "asks for another Rego than version 1", "write the policies for version 1")
        roots = tuple(tuple(part for part in root.strip("/").split("/") if part) for root in file.roots)
        for one, other in combinations(roots, 2):
            if _holds(one, other) or _holds(other, one):
                raise refusal(MANIFEST, f"the roots {'/'.join(one)!r} and {'/'.join(other)!r} overlap", "keep one")
        return cls(file.revision, roots)

    def permit(self, modules: Mapping[str, str], data: Mapping[str, Any]) -> None:
        """Raises ``BundleRefused`` with every package and document outside the roots, as OPA would refuse it."""
        if self.roots == _EVERYTHING:
            return
        faults = [*self._packages(modules), *self._documents(data, ())]
        if faults:
            raise BundleRefused(faults)

    def _packages(self, modules: Mapping[str, str]) -> Iterator[BundleFault]:
        for name, text in modules.items():
            package = _package(text)
            if package is None:
                yield BundleFault(name, 0, 0, "its package cannot be told", "begin the file with `package a.b.c`")
            elif not self._within(package):
                yield self._outside(name, f"package {'.'.join(package)}")

    def _documents(self, value: Any, path: Segments) -> Iterator[BundleFault]:
        if self._within(path):
            return
        if isinstance(value, dict) and any(_holds(path, root) for root in self.roots):
            for key, member in value.items():
                yield from self._documents(member, (*path, key))
        else:
            yield self._outside("data", f"data.{'.'.join(path)}")

    def _within(self, path: Segments) -> bool:
        return any(_holds(root, path) for root in self.roots)

    def _outside(self, file: str, what: str) -> BundleFault:
        shown = ", ".join("/".join(root) or '""' for root in self.roots)
        return BundleFault(
            file, 0, 0, f"{what} is outside the roots of the manifest ({shown})"[:500], "correct one of the two"
        )


def _holds(root: Segments, path: Segments) -> bool:
    return path[: len(root)] == root


def _package(text: str) -> Segments | None:
    """The first statement of every module, or None for what Rego would refuse as well."""
    match = _PACKAGE.match(text)
    if not match:
        return None
    try:
        return (match[1], *(dotted or json.loads(quoted) for dotted, quoted in _PART.findall(match[2])))
    except ValueError:
        return None
