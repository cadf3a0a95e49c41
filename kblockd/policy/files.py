"""The files of a bundle, wherever they stand: a folder, or one archive; read once, with bounds, nothing interpreted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kblockd.policy.faults import refusal

MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 << 20
MANIFEST: Final = ".manifest"
SIGNATURES: Final = ".signatures.json"
DATA: Final = ("data.json", "data.yaml", "data.yml")

_ACTING: Final = ("policy.wasm", "plan.json", "plan.pb", "patch.json", ".manifest.pb")
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def is_data(name: str) -> bool:
    """Whether OPA takes a file of this name for a document."""
    return name.rpartition("/")[2] in DATA


def is_read(name: str) -> bool:
    """Whether kblockd takes it: policies, documents, the manifest. Other files are passed over."""
    return name.endswith(".rego") or is_data(name) or name == MANIFEST


def acts_elsewhere(name: str) -> bool:
    """Whether OPA would do something with it: compiled policies, patches, another manifest."""
    return name.rpartition("/")[2] in _ACTING or (name.endswith(MANIFEST) and name != MANIFEST)


def from_folder(folder: Path) -> dict[str, bytes]:
    """Contents by path relative to ``folder``: policies, documents and the manifest; where ``.signatures.json`` stands
    beside them, every other file too, because a signature speaks of all. Blocks.

    Names that start with a dot are passed over: editors' locks, and the versions below a mounted ConfigMap.

    Raises ``PolicyRefused`` naming the file: unreadable, no regular file, or too much.
    """
    every = (folder / SIGNATURES).exists()
    found: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder):
        name = path.relative_to(folder).as_posix()
        if not (every or is_read(name)):
            continue
        if (shown := name.encode(errors="backslashreplace").decode()) != name:
            raise refusal(shown, "a name that is not UTF-8", "rename it")
        found[name] = regular(path, name)
        size += len(found[name])
        if size > MAX_BYTES or len(found) > MAX_FILES:
            raise refusal(name, f"more than {MAX_BYTES} bytes or {MAX_FILES} files", "split data from policy")
    return found


def regular(path: Path, name: str) -> bytes:
    """The content of a plain file of at most ``MAX_BYTES``, opened once; a pipe is refused, not waited for. Blocks."""
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refusal(name, "not a regular file", "remove it")
            with open(descriptor, "rb", closefd=False) as stream:
                content = stream.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise refusal(name, f"cannot be read ({error.strerror})", "correct its path, type or mode") from None
    if len(content) > MAX_BYTES:
        raise refusal(name, f"more than {MAX_BYTES} bytes", "split data from policy")
    return content


def _paths(folder: Path) -> Iterator[Path]:
    """In order; folders only where their name is one of a policy or document, so that it is not passed over."""
    try:
        entries = sorted(_entries(folder))
    except OSError as error:
        raise refusal(str(folder), f"cannot be read ({error.strerror})", "correct policy.bundle") from None
    for path in entries:
        relative = path.relative_to(folder)
        if str(relative) not in (MANIFEST, SIGNATURES) and any(part.startswith(".") for part in relative.parts):
            continue
        if path.is_symlink() and path.is_dir():
            raise refusal(str(relative), "a link to a folder, whose rules would be left out", "put the folder there")
        if not path.is_dir() or path.suffix == ".rego" or path.name in DATA:
            yield path


def _entries(folder: Path) -> Iterator[Path]:
    """All below it; raises ``OSError``. Not ``rglob``: that passes over a folder that it cannot read just now, and what
    would come into force is a policy without the rules in it."""
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        yield Path(entry)
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _entries(Path(entry))
