"""A folder of Rego, read once: what was checked, what decides and what the revision covers are the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kblockd.domain.canonical import NotCanonical, canonical, parse, sha256_hex
from kblockd.policy.faults import Fault, PolicyRefused

MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 << 20
_DATA: Final = ("data.json", "data.yaml", "data.yml")


@dataclass(frozen=True, slots=True)
class Bundle:
    """``modules``: text by path relative to the folder; ``data``: the base document; ``tests``: how many passed.

    ``revision`` is the SHA-256 of the canonical list of [path, text] of every file, tests and data included.
    """

    modules: Mapping[str, str]
    data: Mapping[str, Any]
    revision: str
    tests: int = 0

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Bundle:
        """From texts by path; raises ``PolicyRefused`` for data that is not a strict document."""
        modules = {path: files[path] for path in sorted(files) if path.endswith(".rego")}
        rows = [[path, files[path]] for path in sorted(files)]
        return cls(modules, _data(files), sha256_hex(canonical(rows)))

    def deciding(self) -> dict[str, str]:
        """The modules that answer questions: without the tests."""
        return {path: text for path, text in self.modules.items() if not path.endswith("_test.rego")}

    def to_json(self) -> bytes:
        """The body of the frames that load and check it."""
        return json.dumps({"modules": dict(self.modules), "data": dict(self.data)}).encode()


def read(folder: Path) -> Bundle:
    """Every ``.rego`` file below ``folder`` and one ``data.json`` or ``data.yaml`` in it. Blocks.

    Names that start with a dot are passed over: editors' locks, and the versions below a mounted ConfigMap.

    Raises ``PolicyRefused`` naming the file: unreadable, not UTF-8, too large, or no Rego at all.
    """
    files: dict[str, str] = {}
    size = 0
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        files[name] = _text(path, name)
        size += len(files[name])
        if size > MAX_BYTES or len(files) > MAX_FILES:
            raise _refused(name, f"more than {MAX_BYTES} bytes or {MAX_FILES} files", "split data from policy")
    if not any(name.endswith(".rego") for name in files):
        raise _refused(str(folder), "no .rego file", "point policy.dir at the folder of the policies")
    return Bundle.of(files)


def _paths(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.rglob("*"))
    except OSError as error:
        raise _refused(str(folder), f"cannot be read ({error.strerror})", "correct policy.dir") from None
    for path in entries:
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".rego":
            yield path
        elif path.name in _DATA:
            if path.parent != folder:
                raise _refused(path.relative_to(folder).as_posix(), "data in a subfolder", "move it to the top")
            yield path


def _text(path: Path, name: str) -> str:
    if not path.is_file():
        raise _refused(name, "not a regular file", "remove it")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _refused(name, f"more than {MAX_BYTES} bytes", "split data from policy")
        text = path.read_bytes().decode()
    except OSError as error:
        raise _refused(name, f"cannot be read ({error.strerror})", "correct its type or mode") from None
    except UnicodeDecodeError as error:
        raise _refused(name, f"not UTF-8 at byte {error.start}", "save it as UTF-8") from None
    if "\0" in text:
        raise _refused(name, "holds a NUL character", "remove it")
    return text


def _data(files: Mapping[str, str]) -> Mapping[str, Any]:
    names = [name for name in _DATA if name in files]
    if not names:
        return {}
    if len(names) > 1:
        raise _refused(names[1], f"a second document beside {names[0]}", "keep one of them")
    name = names[0]
    try:
        value = files[name].encode() if name.endswith(".json") else _yaml(files[name])
        document: Mapping[str, Any] = parse(value, max_bytes=MAX_BYTES)
    except (NotCanonical, YAMLError, TypeError, ValueError) as error:
        raise _refused(name, " ".join(str(error).split())[:500], "correct the document") from None
    return document


def _yaml(text: str) -> bytes:
    """As JSON, so that YAML data meet the same strictness; dates and other tags are refused by the encoder."""
    return json.dumps(YAML(typ="safe", pure=True).load(text), allow_nan=False).encode()


def _refused(file: str, message: str, next_step: str) -> PolicyRefused:
    return PolicyRefused([Fault(file, 0, 0, message, next_step)])
