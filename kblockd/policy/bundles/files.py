"""The files of a bundle, from a folder or one archive: read once, within bounds, not interpreted."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kblockd.paths import Opened, Unsafe, Writers, open_path
from kblockd.policy.faults import BundleRefused, refusal

MAX_FILES: Final = 1000
MAX_BYTES: Final = 4 << 20
MAX_ENTRIES: Final = 10_000
"""Names looked at in one folder of policies, all levels together: links could name the same folders again and again."""
MAX_LEVELS: Final = 32
MANIFEST: Final = ".manifest"
SIGNATURES: Final = ".signatures.json"
DATA: Final = ("data.json", "data.yaml", "data.yml")

_ACTING: Final = ("policy.wasm", "plan.json", "plan.pb", "patch.json", ".manifest.pb")


def is_data(name: str) -> bool:
    """Whether OPA reads a file of this name as data."""
    return name.rpartition("/")[2] in DATA


def is_read(name: str) -> bool:
    """Whether kblockd reads it: policies, documents, the manifest. Other files are ignored."""
    return name.endswith(".rego") or is_data(name) or name == MANIFEST


def acts_elsewhere(name: str) -> bool:
    """Whether OPA would act on it: compiled policies, patches, another manifest."""
    return name.rpartition("/")[2] in _ACTING or (name.endswith(MANIFEST) and name != MANIFEST)


def from_folder(folder: Path, writers: Writers | None = None) -> dict[str, bytes]:
    """Contents by path relative to ``folder``: policies, documents and the manifest; where ``.signatures.json`` stands
    beside them, every other file too, because a signature speaks of all. Blocks.

    Names that start with a dot are passed over: editors' locks, and the versions below a mounted ConfigMap. Links work
    inside the folder, as a ConfigMap's do, and are refused when they lead out of it (LOC-01). ``writers``: who alone
    may write the folder, what is in it and what is above it; None for a folder that comes into force nowhere.

    Raises ``BundleRefused`` naming the file: unreadable, no regular file, too much, or somebody else may write it.
    """
    with _refusing():
        return _collected(folder, writers)


def regular(path: Path, name: str, writers: Writers | None = None) -> bytes:
    """The content of a plain file of at most ``MAX_BYTES``; a pipe is refused, not waited for. Blocks.

    Raises ``BundleRefused``, also when somebody else may write it.
    """
    with _refusing():
        return _regular(path, name, writers)


def check_writers(path: Path, writers: Writers) -> None:
    """Raises ``Unsafe`` when somebody else may write the folder or the archive. What else is wrong with it, or that it
    is missing, is for ``kblockd.policy.bundles.bundle.read`` to say. Blocks."""
    with suppress(BundleRefused):
        if path.is_dir():
            _collected(path, writers)
        else:
            _regular(path, str(path), writers)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except Unsafe as unsafe:
        raise refusal(str(unsafe.path), unsafe.message, unsafe.next_step) from None


def _regular(path: Path, name: str, writers: Writers | None) -> bytes:
    try:
        file = open_path(path)
    except OSError as error:
        raise _unreadable(name, error) from None
    with file:
        return _content(file, name, writers)


def _collected(folder: Path, writers: Writers | None) -> dict[str, bytes]:
    try:
        top = open_path(folder)
    except OSError as error:
        raise _unreadable(str(folder), error, "correct policy.bundle") from None
    with top:
        return _Folder(top, writers, every=(folder / SIGNATURES).exists()).read()


@dataclass(slots=True)
class _Folder:
    """One reading of the folder ``top``; ``every`` file counts, or only policies, documents and the manifest.

    Each name is opened from the top, so that a link in a folder below may lead to another folder below.
    """

    top: Opened
    writers: Writers | None
    every: bool
    contents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    seen: int = 0

    def read(self) -> dict[str, bytes]:
        """Raises ``BundleRefused`` or ``Unsafe``."""
        self._folder(self.top, "", ())
        return self.contents

    def _folder(self, folder: Opened, prefix: str, above: tuple[tuple[int, int], ...]) -> None:
        """With what is below; ``above`` are the folders that it is in. Not ``rglob``: that passes over a folder that it
        cannot read just now, and what would come into force is a policy without the rules in it."""
        if self.writers is not None:
            self.writers.judge(folder.steps)
        status = os.fstat(folder.descriptor)
        here = (status.st_dev, status.st_ino)
        if here in above or len(above) == MAX_LEVELS:
            raise refusal(prefix, f"a link to a folder above it, or more than {MAX_LEVELS} levels", "remove it")
        for name, entry in self._entries(folder, prefix):
            if (opened := self._opened(name, entry)) is None:
                continue
            with opened:
                if opened.is_folder and not is_read(name):
                    self._folder(opened, f"{name}/", (*above, here))
                elif self._counts(name):
                    self._take(name, opened)

    def _entries(self, folder: Opened, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """In order; hidden names are passed over but for the two that act at the top."""
        try:
            with os.scandir(folder.descriptor) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            raise _unreadable(prefix or str(folder.path), error, "correct policy.bundle") from None
        self.seen += len(entries)
        if self.seen > MAX_ENTRIES:
            raise refusal(prefix or str(folder.path), f"more than {MAX_ENTRIES} names", "point policy.bundle elsewhere")
        for entry in entries:
            name = prefix + entry.name
            if name in (MANIFEST, SIGNATURES) or not entry.name.startswith("."):
                yield name, entry

    def _opened(self, name: str, entry: os.DirEntry[str]) -> Opened | None:
        """None for what does not count: another file, or a link that points at nothing."""
        counts = self._counts(name)
        if not counts and not entry.is_symlink() and not entry.is_dir(follow_symlinks=False):
            return None
        try:
            return self.top.beneath(name)
        except OSError as error:
            if error.errno == errno.ENOENT and not counts:
                return None
            raise _unreadable(_shown(name), error) from None

    def _counts(self, name: str) -> bool:
        return self.every or is_read(name)

    def _take(self, name: str, file: Opened) -> None:
        if (shown := _shown(name)) != name:
            raise refusal(shown, "a name that is not UTF-8", "rename it")
        content = _content(file, name, self.writers)
        self.contents[name] = content
        self.size += len(content)
        if self.size > MAX_BYTES or len(self.contents) > MAX_FILES:
            raise refusal(name, f"more than {MAX_BYTES} bytes or {MAX_FILES} files", "split data from policy")


def _content(file: Opened, name: str, writers: Writers | None) -> bytes:
    """Raises ``BundleRefused`` or ``Unsafe``."""
    if not file.is_file:
        raise refusal(name, "not a regular file", "remove it")
    if writers is not None:
        writers.judge(file.steps)
    try:
        content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(name, error) from None
    if len(content) > MAX_BYTES:
        raise refusal(name, f"more than {MAX_BYTES} bytes", "split data from policy")
    return content


def _shown(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()


def _unreadable(name: str, error: OSError, step: str = "correct its path, type or mode") -> BundleRefused:
    if error.errno == errno.EXDEV:
        return refusal(name, "a link that leads out of the folder", "put the file itself there")
    return refusal(name, f"cannot be read ({error.strerror})", step)
