"""What a bundle must pass before OPA may decide by it, by the OPA binary itself in throw-away processes.

Compiled without the builtins that OPA calls non-deterministic (the network, randomness, the clock, the runtime,
schemas that fetch others) and without ``print`` and ``trace``; asked every entry point; its own tests run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kblockd.policy import builtins, entrypoints
from kblockd.policy.bundle import Bundle
from kblockd.policy.engine import PolicyFailure
from kblockd.policy.faults import Fault, LoadFailed, PolicyRefused
from kblockd.policy.loading import unloadable
from kblockd.policy.opa.process import OpaLimits, OpaProcess
from kblockd.policy.opa.running import Running, completed, fresh, make_private
from kblockd.policy.opa.tarball import build
from kblockd.policy.samples import SAMPLES

MAX_OUTPUT: Final = 16 << 20
_RESERVED: Final = {"kblock": "is also a package", "system": "is OPA's own, its revision among it"}
_LOGS: Final = ("print", "trace")
_UNDEFINED_FUNCTION: Final = "undefined function "


async def check(bundle: Bundle, program: Path, run_dir: Path, limits: OpaLimits) -> Bundle:
    """The bundle with the number of tests that passed; raises ``PolicyRefused`` with every fault of the first step
    that finds any. Takes at most ``load_seconds``; leaves neither process nor file."""
    folder, passing = fresh(run_dir, f"check-{os.getpid()}-"), False
    try:
        await completed(_write, bundle, folder)
        async with asyncio.timeout(limits.load_seconds):
            faults, tests = await _steps(_Workshop(bundle, program, folder, limits))
    except TimeoutError:
        faults, tests = [unloadable(f"checking it took longer than {limits.load_seconds:g} s")], 0
    except (LoadFailed, OSError) as error:
        faults, tests, passing = [unloadable(f"OPA could not check it: {error}")], 0, True
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    if faults:
        raise PolicyRefused(faults, revision=bundle.revision, passing=passing)
    return Bundle(bundle.modules, bundle.data, bundle.revision, tests)


@dataclass(frozen=True, slots=True)
class _Workshop:
    """A bundle in files, and the program that looks at it."""

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


async def _steps(shop: _Workshop) -> tuple[list[Fault], int]:
    (shop.folder / "capabilities.json").write_text(json.dumps(await _allowed(shop)))
    for step in (_compiled, _quiet, _probed):
        if faults := await step(shop):
            return faults, 0
    return await _tested(shop)


async def _allowed(shop: _Workshop) -> dict[str, Any]:
    """What this OPA offers, without what may not decide."""
    code, output = await shop.opa("capabilities", "--current")
    try:
        offered: dict[str, Any] = json.loads(output)
        rows = [row for row in offered["builtins"] if not row.get("nondeterministic") and row["name"] not in _LOGS]
    except (ValueError, KeyError, TypeError):
        raise LoadFailed(f"opa capabilities ended with {code}: {_text(output)}") from None
    return {**offered, "builtins": rows, "allow_net": []}


async def _compiled(shop: _Workshop) -> list[Fault]:
    for name, why in _RESERVED.items():
        if name in shop.bundle.data:
            return [Fault("data", 0, 0, f"data.{name} {why}", "give the document another name")]
    code, output = await shop.opa("check", "--format=json", "--capabilities=../capabilities.json", "--bundle", ".")
    if code == 0:
        return []
    rows = _errors(output)
    if any(row.get("code") == "rego_parse_error" for row in rows):  # the first broken file hides the others
        for file in shop.bundle.modules:
            rows += _errors((await shop.opa("parse", "--format=json", f"./{file}"))[1])
    faults = {_order(fault)[:3]: fault for fault in sorted(map(_fault, rows), key=_order)}  # one for each place
    return list(faults.values()) or [unloadable(f"opa check ended with {code}: {_text(output)}")]


def _errors(output: bytes) -> list[Mapping[str, Any]]:
    try:
        return [row for row in json.loads(output)["errors"] if isinstance(row["message"], str)]
    except (ValueError, KeyError, TypeError):
        return []


def _fault(row: Mapping[str, Any]) -> Fault:
    message, where = " ".join(str(row["message"]).split())[:500], row.get("location") or {}
    place = str(where.get("file", ".")).removeprefix("./"), int(where.get("row", 0)), int(where.get("col", 0))
    name = message.removeprefix(_UNDEFINED_FUNCTION)
    if name != message and name in builtins.OUTSIDE:
        return Fault(*place, f"{name} may not be called", builtins.OUTSIDE[name])
    return Fault(*place, message, "correct the rule")


async def _quiet(shop: _Workshop) -> list[Fault]:
    """``print`` is no builtin to the compiler: it takes such calls out or leaves them in, as OPA was started."""
    return [
        Fault(file, int(where["row"]), int(where["col"]), "print may not be called", builtins.REFUSED["print"])
        for file, text in shop.bundle.modules.items()
        if "print" in text
        for where in _prints(await _parsed(shop, file))
    ]


def _prints(tree: Any) -> Iterator[Mapping[str, Any]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "ref" and [part.get("value") for part in node["value"]] == ["print"]:
                yield node["location"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


async def _parsed(shop: _Workshop, file: str) -> dict[str, Any]:
    code, output = await shop.opa("parse", "--format=json", "--json-include=locations", f"./{file}")
    try:
        tree = json.loads(output)
    except ValueError:
        raise LoadFailed(f"opa parse ended with {code}: {_text(output)}") from None
    return tree if isinstance(tree, dict) else {}


async def _probed(shop: _Workshop) -> list[Fault]:
    """Every entry point, defined and of its type for the samples."""
    socket = shop.folder / "s"
    process = await OpaProcess.spawn(shop.program, shop.folder / "probe.tar.gz", socket, shop.limits.memory_mib)
    try:
        await process.ready(shop.bundle.revision, shop.limits.load_seconds)
        wrong = {
            entrypoint: why for entrypoint in entrypoints.ENTRYPOINTS if (why := await _why(shop, process, entrypoint))
        }
    finally:
        await process.kill()
    if not wrong:
        return []
    heads = await _heads(shop)
    return [_misfit(entrypoint, why, heads.get(entrypoint)) for entrypoint, why in wrong.items()]


async def _why(shop: _Workshop, process: OpaProcess, entrypoint: str) -> tuple[str, str] | None:
    """What is wrong and the next step, or None."""
    for sample in SAMPLES:
        try:
            reply = await process.opa.ask(entrypoint, sample, shop.bundle.revision, shop.limits.load_seconds)
            if "value" not in reply:
                return f"{entrypoint} is undefined for the sample input", "add `default result := ...` that denies"
            entrypoints.check(entrypoint, reply["value"])
        except PolicyFailure as failure:
            return failure.message, "return exactly the keys and types of the entry point, for every input"
    return None


def _misfit(entrypoint: str, why: tuple[str, str], head: tuple[str, Mapping[str, Any]] | None) -> Fault:
    if head is None:
        package = ".".join(entrypoint.split("/")[:-1])
        return Fault(".", 0, 0, f"package {package} has no rule `result`", f"add a file with package {package}")
    file, where = head
    return Fault(file, int(where["row"]), int(where["col"]), *why)


async def _heads(shop: _Workshop) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """File and place of the first rule of each entry point."""
    heads: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for file in shop.bundle.deciding():
        tree = await _parsed(shop, file)
        package = [str(part["value"]) for part in tree["package"]["path"][1:]]
        for rule in tree.get("rules") or []:
            if rule["head"]["ref"][0]["value"] == "result":
                heads.setdefault("/".join([*package, "result"]), (file, rule["location"]))
    return heads


async def _tested(shop: _Workshop) -> tuple[list[Fault], int]:
    timeout = f"--timeout={shop.limits.load_seconds:g}s"
    arguments = ("--format=json", timeout, "--capabilities=../capabilities.json", "--bundle", ".")
    code, output = await shop.opa("test", *arguments)
    try:
        rows = [row for row in json.loads(output.strip() or b"[]") or [] if not row.get("skip")]
        faults = [_failed(row) for row in rows if row.get("fail") or row.get("error")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [unloadable(f"opa test ended with {code}: {_text(output)}")], 0
    if not faults and code != 0:
        return [unloadable(f"opa test ended with {code}")], 0
    return sorted(faults, key=_order), len(rows)


def _failed(row: Mapping[str, Any]) -> Fault:
    error, where = row.get("error"), row["location"]
    why = str(error.get("message") or error.get("code")) if isinstance(error, dict) else "it is not true"
    message = f"{row['package']}.{row['name']} fails: {why}"
    return Fault(str(where["file"]), int(where["row"]), int(where["col"]), message, "correct the rule or the test")


def _order(fault: Fault) -> tuple[str, int, int, str]:
    return fault.file, fault.line, fault.column, fault.message


def _text(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[:300] or "it said nothing"
