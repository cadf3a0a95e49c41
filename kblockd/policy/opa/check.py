"""The checks of a bundle before OPA may decide by it, run by the OPA binary itself in temporary processes.

Compiled without the builtins that OPA calls non-deterministic (the network, randomness, the clock, the runtime,
schemas that fetch others) and without ``print`` and ``trace``; no builtin over a value whose wrong type this OPA would
ignore; every entry point probed; its own tests run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kblockd.policy.builtins import allowed
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure, entrypoints
from kblockd.policy.deciding.samples import SAMPLES, TYPED, misfit, missing
from kblockd.policy.faults import BundleFault, BundleRefused, unloadable
from kblockd.policy.opa.process import OpaLimits, OpaProcess
from kblockd.policy.opa.silence import unguarded
from kblockd.policy.opa.workshop import CAPABILITIES, Workshop, opened, shown
from kblockd.policy.rego import advice

_RESERVED: Final = {"kblock": "is also a package", "system": "is OPA's own, its revision among it"}
_UNDEFINED_FUNCTION: Final = "undefined function "


async def check(bundle: Bundle, program: Path, run_dir: Path, limits: OpaLimits) -> Bundle:
    """The bundle with the number of tests that passed; raises ``BundleRefused`` with every fault of the first step
    that finds any. Takes at most ``load_seconds``; leaves neither process nor file."""
    async with opened(bundle, program, run_dir, limits, "checking it") as shop:
        faults, tests = await _steps(shop)
    if faults:
        raise BundleRefused(faults, revision=bundle.revision)
    return replace(bundle, tests=tests)


async def _steps(shop: Workshop) -> tuple[list[BundleFault], int]:
    for step in (compiled, _quiet, unguarded, _probed):
        if faults := await step(shop):
            return faults, 0
    return await _tested(shop)


async def compiled(shop: Workshop) -> list[BundleFault]:
    """Every fault that ``opa check`` finds, one for each place."""
    for name, why in _RESERVED.items():
        if name in shop.bundle.data:
            return [BundleFault("data", 0, 0, f"data.{name} {why}", "give the document another name")]
    code, output = await shop.opa("check", "--format=json", CAPABILITIES, "--bundle", ".")
    if code == 0:
        return []
    rows = _errors(output)
    if any(row.get("code") == "rego_parse_error" for row in rows):  # the first broken file hides the others
        for file in shop.bundle.modules:
            rows += _errors((await shop.opa("parse", "--format=json", f"./{file}"))[1])
    faults = {_order(fault)[:3]: fault for fault in sorted(map(_fault, rows), key=_order)}  # one for each place
    return list(faults.values()) or [unloadable(f"opa check ended with {code}: {shown(output)}")]


def _errors(output: bytes) -> list[Mapping[str, Any]]:
    try:
        return [row for row in json.loads(output)["errors"] if isinstance(row["message"], str)]
    except (ValueError, KeyError, TypeError):
        return []


def _fault(row: Mapping[str, Any]) -> BundleFault:
    message, where = " ".join(str(row["message"]).split())[:500], row.get("location") or {}
    place = str(where.get("file", ".")).removeprefix("./"), int(where.get("row", 0)), int(where.get("col", 0))
    name = message.removeprefix(_UNDEFINED_FUNCTION)
    if name != message and name in allowed.OUTSIDE:
        return BundleFault(*place, f"{name} may not be called", allowed.OUTSIDE[name])
    otherwise = advice.SYNTAX if row.get("code") == "rego_parse_error" else advice.RULE
    return BundleFault(*place, message, advice.next_step(message, otherwise))


async def _quiet(shop: Workshop) -> list[BundleFault]:
    """``print`` is not a builtin to the compiler, which keeps or removes such calls depending on OPA's flags."""
    return [
        BundleFault(file, int(where["row"]), int(where["col"]), "print may not be called", allowed.REFUSED["print"])
        for file, text in shop.bundle.modules.items()
        if "print" in text
        for where in _prints(await shop.parsed(file))
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


async def _probed(shop: Workshop) -> list[BundleFault]:
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


async def _why(shop: Workshop, process: OpaProcess, entrypoint: str) -> tuple[str, str] | None:
    """What is wrong and the next step, or None."""
    for sample in SAMPLES:
        try:
            reply = await process.opa.ask(entrypoint, sample, shop.bundle.revision, shop.limits.load_seconds)
        except PolicyFailure as failure:
            return failure.message, TYPED
        if wrong := misfit(entrypoint, reply):
            return wrong
    return None


def _misfit(entrypoint: str, why: tuple[str, str], head: tuple[str, Mapping[str, Any]] | None) -> BundleFault:
    if head is None:
        return missing(entrypoint)
    file, where = head
    return BundleFault(file, int(where["row"]), int(where["col"]), *why)


async def _heads(shop: Workshop) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """File and place of the first rule of each entry point."""
    heads: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for file in shop.bundle.deciding():
        tree = await shop.parsed(file)
        package = [str(part["value"]) for part in tree["package"]["path"][1:]]
        for rule in tree.get("rules") or []:
            if rule["head"]["ref"][0]["value"] == "result":
                heads.setdefault("/".join([*package, "result"]), (file, rule["location"]))
    return heads


async def _tested(shop: Workshop) -> tuple[list[BundleFault], int]:
    code, output = await shop.test()
    try:
        rows = [row for row in json.loads(output) or [] if not row.get("skip")]
        faults = [_failed(row) for row in rows if row.get("fail") or row.get("error")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [unloadable(f"opa test ended with {code}: {shown(output)}")], 0
    if not faults and code != 0:
        return [unloadable(f"opa test ended with {code}")], 0
    return sorted(faults, key=_order), len(rows)


def _failed(row: Mapping[str, Any]) -> BundleFault:
    where, message = row["location"], f"{test_name(row)} fails: {why_failed(row)}"
    return BundleFault(str(where["file"]), int(where["row"]), int(where["col"]), message, advice.RULE_OR_TEST)


def test_name(row: Mapping[str, Any]) -> str:
    """Of a row of ``opa test``, with its package."""
    return f"{str(row['package']).removeprefix('data.')}.{row['name']}"


def why_failed(row: Mapping[str, Any]) -> str:
    """Empty for a test that passed."""
    error = row.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error.get("code"))
    return advice.FAILING if row.get("fail") or error else ""


def _order(fault: BundleFault) -> tuple[str, int, int, str]:
    return fault.file, fault.line, fault.column, fault.message
