"""Kills under load, and what an outside checker finds: ``python -m tests.crash.load.run [--kills 200 --callers 64]``.

Exits with 1 when it finds anything. ``--seed`` repeats a plan; ``--forked`` starts daemons without their imports.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.crash.daemon.forked import ForkedSite
from tests.crash.load.campaign import Campaign
from tests.crash.load.checker import Fault, Report, check
from tests.crash.load.history import History, interrupted
from tests.crash.load.plan import Plan
from tests.crash.load.provider import Provider
from tests.harness import Site


def campaign(plan: Plan, *, forked: bool, say: Callable[[str], None] = print) -> tuple[Campaign, Report]:
    """One campaign and what the checker says of it."""
    opened = ForkedSite.forking() if forked else Site.make()
    with opened as site, Provider.start(site.folder) as provider:
        done = Campaign(plan, site, provider)
        asyncio.run(done.run(say))
    return done, check(done.history)


def table(done: Campaign, report: Report) -> str:
    """What happened, where the deaths hit, and each rule with its cases and its findings."""
    history, plan = done.history, done.plan
    lines = [f"seed {plan.seed}: {done.kills} kills, {plan.callers} callers, {len(history.given)} answers"]
    lines += [
        f"  {len(history.calls)} calls and {len(history.effects)} effects at the upstream, "
        f"{len(history.leaves)} records, {history.silent.total()} attempts without an answer",
        *_counted("answers", Counter(_said(history))),
        *_counted("executions open at a death, by their last record", interrupted(history.leaves)),
        f"  ledger verify: {'verified' if done.verified['ok'] else done.verified}, "
        f"against {len(done.checkpoints)} checkpoints",
        f"  {'looked at':>9}  {'found':>5}",
        *(f"  {report.looked_at[one]:9}  {len(report.found(one)):5}  {one}" for one in Fault),
    ]
    found = [
        f"{one.fault.name} {one.where}: {one.words}\n  {_story(history, one.where)}" for one in report.findings[:50]
    ]
    return "\n".join([*lines, *found])


def _story(history: History, where: str) -> str:
    """The records of an execution, or of an order's, as a reader of a finding wants them."""
    proposed = (leaf for leaf in history.leaves if leaf.type == "execution.proposed")
    executions = {leaf.execution for leaf in proposed if where in (leaf.execution, leaf.body["target"]["id"])}
    words = ("verdict", "finding", "class", "state", "code")
    return " > ".join(
        " ".join([f"{leaf.index} {leaf.type}", *(str(leaf.body[word]) for word in words if leaf.body.get(word))])
        for leaf in history.leaves
        if leaf.execution in executions
    )


def _said(history: History) -> list[str]:
    return [" ".join(filter(None, (one.kind, one.result_class, one.reason))) for one in history.given]


def _counted(title: str, counts: Counter[str]) -> list[str]:
    return [f"  {title}:", *(f"    {number:7}  {word}" for word, number in counts.most_common())]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Kills under load, judged from outside.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--forked", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    done, report = campaign(Plan(asked.seed, asked.kills, asked.callers), forked=asked.forked)
    print(table(done, report))
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0 if not report.findings and done.verified["ok"] else 1)


if __name__ == "__main__":
    main()
