"""Where kblockd stands: executions a second, latency, CPU time and syncs, beside the floors of the same run.

``make bench``, or ``python -m tests.bench.run [--only plain,mcp] [--seconds 8] [--callers 1,16,64] [--profile]``.
Load, upstream and daemon share this machine's cores, and it is seldom idle ("others' CPU" is what everything else on it
took): rates and latencies are worth something beside the floors only; CPU time an execution is the steadiest figure.
Nothing is asserted but that no effect was doubled.

The parts of ``--only``: ``plain`` (HTTP, nothing read back), ``verified`` (with a verification read), ``mcp``, ``opa``
(the OPA engines as a ratio to the embedded one), ``data`` (one question with more and more policy data), ``reload``
(of the policy, under load), ``store`` (a store that holds ``--executions`` already; it takes minutes and gigabytes to
make, so ``--keep`` it). Everything is on in all of them: policy, pins, signatures, head, traces at the default ratio.

::

    action      the action that is measured           variants   plain, verified, mcp
    load        the callers and what they saw         engines    opa
    upstream    the HTTP and MCP server               questions  data
    effects     what it has done                      reload     reload
    mcp         its MCP side                          filled     store
    rpc         the gRPC echo and trace collector     copies     how that store is made
    servers     how those processes are started       floors     disk, gRPC and upstream without kblockd
    daemon      the daemon and what is read off it    figures    what a measurement is
    processes   CPU time and memory from /proc        report     how it is printed
    syncs       fdatasyncs, counted by syncs.c        profiled   the daemon with a sampler of its loop
    run         options and order                     profile    what the samples say
    counted     the daemon with a count of its steps  steps      bytecodes and Python calls of an execution
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench import engines, filled, floors, questions, reload, report, servers, variants
from tests.bench.figures import Figures, Measured
from tests.bench.servers import Counterparts, Server
from tests.bench.variants import VARIANTS

_FLOOR_SECONDS: Final = 2.0
_PARTS: Final = (*VARIANTS, "opa", "data", "reload", "store")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Raises SystemExit for what is no option."""
    parser = argparse.ArgumentParser(prog="tests.bench.run", description="Measures kblockd on this machine.")
    parser.add_argument(
        "--only", default=",".join(_PARTS[:-1]), help=f"of {', '.join(_PARTS)} (default: all but store)"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load (default 8)")
    parser.add_argument("--callers", default="1,16,64", help="numbers of callers (default 1,16,64)")
    parser.add_argument("--profile", action="store_true", help="each variant once more, its loop under a profiler")
    parser.add_argument("--executions", type=int, default=1_000_000, help="that the store holds (default 10^6)")
    parser.add_argument("--keep", type=Path, help="a folder in which that store stays for another run")
    parser.add_argument("--no-floors", action="store_true", help="only the variants")
    found = parser.parse_args(arguments)
    found.only = found.only.split(",")
    found.callers = tuple(int(number) for number in found.callers.split(","))
    if unknown := set(found.only) - set(_PARTS):
        parser.error(f"--only {', '.join(sorted(unknown))}: give some of {', '.join(_PARTS)}")
    return found


def main() -> None:
    """Prints; exits with 1 when an effect was doubled."""
    chosen = options()
    with servers.running("upstream") as upstream, servers.running("rpc") as rpc:
        with_ = Counterparts(upstream, rpc, chosen.callers, chosen.seconds)
        bare = [] if chosen.no_floors else _floors(with_)
        found = {name: _variant(name, with_, profile=chosen.profile) for name in chosen.only if name in VARIANTS}
        for part in _printed(chosen, with_):
            print(part, flush=True)
        if "plain" in found:
            print(report.aims(found["plain"], bare))
        sys.exit(_doubled(upstream))


def _printed(chosen: argparse.Namespace, with_: Counterparts) -> Iterator[str]:
    """The parts that are no variants, in their order, as they end."""
    if "opa" in chosen.only:
        yield report.engines(engines.run(with_)) if engines.OPA.exists() else "\nopa: no binary, `make opa` builds it"
    if "data" in chosen.only:
        kinds = questions.KINDS if engines.OPA.exists() else questions.KINDS[:1]
        yield report.questions(questions.run(kinds, chosen.seconds))
    if "reload" in chosen.only:
        yield report.reloads(reload.run(with_))
    if "store" in chosen.only:
        yield report.compared(filled.run(with_, chosen.executions, chosen.keep))


def _floors(with_: Counterparts) -> list[Figures]:
    with tempfile.TemporaryDirectory(prefix="kb-", dir="/tmp") as folder:
        syncs = floors.fdatasyncs(Path(folder), _FLOOR_SECONDS)
    echoes = [floors.echoes(with_.rpc, number, _FLOOR_SECONDS) for number in with_.callers]
    bare = [floors.bare(with_.upstream, number, _FLOOR_SECONDS) for number in with_.callers]
    print(report.floors(syncs, echoes, bare), flush=True)
    return bare


def _variant(name: str, with_: Counterparts, *, profile: bool) -> Measured:
    measured = variants.run(VARIANTS[name], with_)
    print(report.variant(measured), flush=True)
    if profile:
        with tempfile.TemporaryDirectory(prefix="kb-") as folder:
            found, executions = variants.profiled(VARIANTS[name], with_, Path(folder) / "profile")
        print(report.profile(found, executions), flush=True)
    return measured


def _doubled(upstream: Server) -> int:
    """1 when the upstream saw an effect twice."""
    with urllib.request.urlopen(f"{upstream.url}/count", timeout=30) as answer:
        count = json.load(answer)
    print(f"\n{count['count']} effects, none of them doubled" if count["most"] <= 1 else f"\nDOUBLED: {count}")
    return int(count["most"] > 1)


if __name__ == "__main__":
    main()
