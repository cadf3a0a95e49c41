"""Syncs taken out of the daemon, to prove that the power-cut tests can fail; the tree itself is never touched.

As a script: ``mutants.py NAME`` changes the source of one module on its way into the interpreter and then becomes the
zygote of tests/crash/daemon. ``NAME`` may be empty: then nothing is changed.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

MUTANTS = {
    "log never synced": (
        "kblockd.store.committer",
        "self._database.flush_wal(True)",
        "self._database.flush_wal(False)",
    ),
    "head never synced": ("kblockd.store.head", "os.fdatasync(self._descriptor)", "pass"),
    "head before log": (
        "kblockd.store.committer",
        "self._database.flush_wal(True)",
        "self._head.write(size, self._database.latest_sequence_number(), self._tree.root())",
    ),
    "names never synced": ("kblockd.store.head", "os.fsync(descriptor)\n    finally", "pass\n    finally"),
}


def install(name: str) -> ModuleType:
    """The module as it would be without that line; raises ValueError when the line is not there exactly once."""
    module, line, instead = MUTANTS[name]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    if source.count(line) != 1:
        raise ValueError(f"{module} does not hold {line!r} once: the mutant {name!r} must follow the code")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    parent, _, leaf = module.rpartition(".")
    setattr(sys.modules[parent], leaf, made)
    exec(compile(source.replace(line, instead), spec.origin, "exec"), made.__dict__)
    return made


def main() -> None:
    """The zygote, mutated."""
    if sys.argv[1]:
        install(sys.argv[1])
    from tests.crash.daemon.zygote import main as fork_daemons

    fork_daemons()


if __name__ == "__main__":
    main()
