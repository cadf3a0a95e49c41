"""Builds the gRPC stubs from proto/ into kblockd/_proto, at install, also an editable one.

The generated modules import each other as ``kblock.v1``; that top-level name is not ours to take,
so the imports are rewritten to ``kblockd._proto.kblock.v1``. mypy-protobuf's plugins are used where
they are installed (development), so that strict typing reaches the stubs.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _plugin(name: str) -> str | None:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def build(root: Path) -> list[Path]:
    """Generates the stubs under ``root`` and returns the files; raises RuntimeError when protoc refuses."""
    from importlib.resources import files

    from grpc_tools import protoc

    source, target = root / "proto", root / "kblockd" / "_proto"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    protos = sorted(str(p.relative_to(source)) for p in source.rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{source}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={target}",
        f"--grpc_python_out={target}",
    ]
    for flag, plugin in (("mypy", "protoc-gen-mypy"), ("mypy_grpc", "protoc-gen-mypy_grpc")):
        if path := _plugin(plugin):
            arguments += [f"--plugin=protoc-gen-{flag}={path}", f"--{flag}_out={target}"]
    if protoc.main(arguments + protos) != 0:
        raise RuntimeError("protoc refused the files in proto/")
    for folder in [target, *(p for p in target.rglob("*") if p.is_dir())]:
        (folder / "__init__.py").touch()
    generated = sorted(target.rglob("*.py*"))
    for file in generated:
        text = file.read_text()
        text = re.sub(r"^(from|import) kblock\b", r"\1 kblockd._proto.kblock", text, flags=re.M)
        text = re.sub(r"(?<![\w.])kblock\.v1\.(\w+_pb2)", r"kblockd._proto.kblock.v1.\1", text)
        file.write_text(text)
    return generated


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook: the stubs are there before anything is packed or linked."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build(Path(self.root))


if __name__ == "__main__":
    for path in build(Path(__file__).resolve().parent.parent):
        print(path)
