"""A bundle laid out in a folder of its own, and temporary OPA processes over it.

OPA is given neither the builtins that it calls non-deterministic (the network, randomness, the clock, the runtime,
schemas that fetch others) nor ``print`` and ``trace``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.faults import BundleFault, BundleRefused, LoadFailed, unloadable
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.running import Running, fresh, make_private
from kblockd.policy.opa.tarball import build
from kblockd.policy.threads import completed

MAX_OUTPUT: Final = 16 << 20
CAPABILITIES: Final = "--capabilities=../capabilities.json"
_WORKING: Final = "see that policy.opa.command (or --opa) is an OPA that runs here; or shorten the rules, tests or data"
_LOGS: Final = ("print", "trace")


@dataclass(frozen=True, slots=True)
class Workshop:
    """Programs run in ``folder/bundle``; ``folder/probe.tar.gz`` is the bundle as a server takes it."""

    bundle: Bundle
    program: Path
    folder: Path
    limits: OpaLimits

    async def opa(self, *arguments: str) -> tuple[int, bytes]:
        """Exit code and output; raises ``OSError`` or ``LoadFailed``. The process group is killed on the way out."""
        running = await Running.start(self.program, self.limits.memory_mib, *arguments, folder=self.folder / "bundle")
        parts, size = [], 0
        try:
            while part := await running.read():
                parts.append(part)
                if (size := size + len(part)) > MAX_OUTPUT:
                    raise LoadFailed(f"opa {arguments[0]} says more than {MAX_OUTPUT} bytes")
            return await running.wait(), b"".join(parts)
        finally:
            await running.kill()

    async def test(self, *arguments: str) -> tuple[int, bytes]:
        """``opa test`` as JSON, as ``opa``; its empty output without a test becomes an empty list."""
        timeout = f"--timeout={self.limits.load_seconds:g}s"
        code, output = await self.opa("test", "--format=json", timeout, CAPABILITIES, *arguments, "--bundle", ".")
        return code, output.strip() or b"[]"

    async def parsed(self, file: str) -> dict[str, Any]:
        """The syntax tree of a file of the bundle, with places; raises ``LoadFailed``."""
        code, output = await self.opa("parse", "--format=json", "--json-include=locations", f"./{file}")
        try:
            tree = json.loads(output)
        except ValueError:
            raise LoadFailed(f"opa parse ended with {code}: {shown(output)}") from None
        return tree if isinstance(tree, dict) else {}


@contextlib.asynccontextmanager
async def opened(
    bundle: Bundle, program: Path, run_dir: Path, limits: OpaLimits, doing: str
) -> AsyncIterator[Workshop]:
    """For at most ``load_seconds``; leaves neither process nor file.

    What takes longer, and what OPA cannot do, becomes ``BundleRefused``; ``doing`` (such as "checking it") says what.
    """
    folder = fresh(run_dir, f"check-{os.getpid()}-")
    shop = Workshop(bundle, program, folder, limits)
    try:
        await completed(_write, bundle, folder)
        async with asyncio.timeout(limits.load_seconds):
            (folder / "capabilities.json").write_text(json.dumps(await _allowed(shop)))
            yield shop
    except TimeoutError:
        fault = unloadable(f"{doing} took longer than {limits.load_seconds:g} s")
        raise BundleRefused([fault], revision=bundle.revision) from None
    except (LoadFailed, OSError) as error:
        fault = BundleFault(".", 0, 0, f"OPA failed at {doing}: {error}", _WORKING)
        raise BundleRefused([fault], revision=bundle.revision, transient=True) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def shown(output: bytes) -> str:
    """The start of a program's output, as one line."""
    return " ".join(output.decode(errors="replace").split())[:300] or "no output"


def _write(bundle: Bundle, folder: Path) -> None:
    make_private(folder)
    (folder / "probe.tar.gz").write_bytes(build(bundle))
    texts = {
        **bundle.modules,
        ".manifest": '{"roots": [""], "rego_version": 1}',
        "data.json": json.dumps({**bundle.data}),
    }
    for name, text in texts.items():
        file = folder / "bundle" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


async def _allowed(shop: Workshop) -> dict[str, Any]:
    """This OPA's capabilities, without the builtins that a policy may not use."""
    code, output = await shop.opa("capabilities", "--current")
    try:
        offered: dict[str, Any] = json.loads(output)
        rows = [row for row in offered["builtins"] if not row.get("nondeterministic") and row["name"] not in _LOGS]
    except (ValueError, KeyError, TypeError):
        raise LoadFailed(f"opa capabilities ended with {code}: {shown(output)}") from None
    return {**offered, "builtins": rows, "allow_net": []}
