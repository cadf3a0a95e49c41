"""The demo: three refunds through a real MCP server, and what each of them proves.

1. Policy wants an approval; a person gives it; the refund happens once and is verified by an independent read.
2. The answer is lost on the way: the refund is found by its effect key, without a second call.
3. The daemon is killed between the call and the record, and started again: the refund is found, not repeated.

Everything runs on this machine, in a folder that is gone afterwards. ``python -m tests.demo.run``; exit 0 when every
claim above was checked from outside (the payment server's own file), else 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from kblockd.client import Answer, Call, CallError
from tests.harness import ROOT, Site, approve, refund
from tests.upstreams.payments import PaymentsServer

console = Console(highlight=False, soft_wrap=True)
LOG_LINES = 20
_STORIES = (
    "A person approves, the refund happens once, and an independent read proves it.",
    "The answer is lost: the refund is found by its effect key, not sent again.",
    "The daemon is killed after the effect, before its record: the refund is found.",
)


class Failed(Exception):
    """A claim of the demo that did not hold."""


def check(claim: str, holds: bool) -> None:
    """Prints the claim; raises ``Failed`` when it does not hold."""
    console.print(f"  [{'green' if holds else 'red'}]{'✓' if holds else '✗'}[/] {claim}")
    if not holds:
        raise Failed(claim)


def say(text: str) -> None:
    """One step of a story."""
    console.print(f"[cyan]→[/] {text}", soft_wrap=True)


def ctl(site: Site, who: str, *arguments: str) -> str:
    """``kblockctl`` as that principal, as a person would call it."""
    command = [str(Path(sys.executable).with_name("kblockctl")), "--socket", str(site.socket(who)), *arguments]
    width = max(80, min(console.width, 110))
    environment = {**os.environ, "COLUMNS": str(width), "FORCE_COLOR": "1" if console.is_terminal else ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    if done.returncode not in (0, 3):
        raise Failed(f"kblockctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def ask_and_approve(site: Site, call: Call) -> Answer:
    """The agent calls, the lead reads and approves; returns the pending answer."""
    with site.client() as agent:
        pending = agent.execute(call)
    say(f"the agent asks; the answer is [bold]{pending.state}[/]; nothing has run")
    with site.client("lead") as lead:
        summary = lead.approval(pending.approval_id).summary
    approve(site, pending.approval_id)
    say("the lead reads this and approves exactly this:")
    console.print(f"    {summary}", markup=False)
    return pending


def show(site: Site, execution_id: str) -> None:
    """The timeline of stages."""
    print(ctl(site, "agent", "timeline", execution_id), end="", flush=True)


def verify_receipt(site: Site, outcome: Answer, folder: Path) -> None:
    """An auditor's check: the stand-alone verifier alone, with the root key pinned."""
    folder.mkdir()
    for name, data in (
        ("result.json", outcome.result_dsse),
        ("receipt.json", outcome.receipt_dsse),
        ("proof.txt", outcome.receipt_proof.encode()),
    ):
        (folder / name).write_bytes(data)
    verifier = ROOT / "kblockd" / "evidence" / "verify_offline.py"
    keys = site.data / "keys"
    command = [sys.executable, "-I", str(verifier), "--root", str(keys / "root.pub.pem")]
    command += ["--keyset", str(keys / "keyset.dsse.json"), "--proof", str(folder / "proof.txt")]
    command += ["--action", outcome.action_sha256, "--state", outcome.state]
    command += ["--result", str(folder / "result.json"), "--receipt", str(folder / "receipt.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        console.print((done.stdout + done.stderr).strip(), markup=False)
    check("an auditor verifies result and receipt offline, with the root key alone", done.returncode == 0)


def first(site: Site, payments: PaymentsServer) -> None:
    """Approval, one effect, verified."""
    call = refund("A-1001", key="demo-1")
    ask_and_approve(site, call)
    with site.client() as agent:
        outcome = agent.execute(call)
        show(site, outcome.execution_id)
        check(f"the refund {outcome.state}, {outcome.result_class}", outcome.result_class == "completed_verified")
        again = agent.execute(call)
    check("the same call again gets the stored result", again.result_dsse == outcome.result_dsse)
    check("the payment provider has exactly one refund", len(payments.effects()) == 1)
    verify_receipt(site, outcome, site.folder / "evidence-1")


def second(site: Site, payments: PaymentsServer) -> None:
    """The answer is lost."""
    call = refund("A-1002", key="demo-2")
    ask_and_approve(site, call)
    payments.control(lose_answer_once=True)
    say("the provider will act, then drop the connection without an answer")
    with site.client() as agent:
        outcome = agent.execute(call)
    show(site, outcome.execution_id)
    check("the outcome was unknown, then found by the effect key", outcome.result_class == "completed_verified")
    effects = [effect for effect in payments.effects() if effect["order_id"] == "A-1002"]
    check("exactly one refund: nothing was sent twice", len(effects) == 1)
    verify_receipt(site, outcome, site.folder / "evidence-2")


def third(site: Site, payments: PaymentsServer) -> None:
    """The daemon is killed between the call and the record."""
    say("the daemon is started so that it dies after the effect, before its record")
    site.stop()
    site.start(failpoint="dispatch:after=kill")
    call = refund("A-1003", key="demo-3")
    ask_and_approve(site, call)
    try:
        with site.client() as agent:
            agent.execute(call)
    except CallError as error:
        say(f"the agent sees [bold]{error.reason}[/], outcome unknown; the daemon is dead ({site.wait_dead()})")
    effects = [effect for effect in payments.effects() if effect["order_id"] == "A-1003"]
    check("the refund happened, and nobody recorded it", len(effects) == 1)
    site.start()
    say("the daemon is back; the agent repeats the identical call")
    with site.client() as agent:
        outcome = agent.execute(call)
    show(site, outcome.execution_id)
    effects = [effect for effect in payments.effects() if effect["order_id"] == "A-1003"]
    check("the refund was found, not repeated", len(effects) == 1 and outcome.result_class == "completed_verified")
    verify_receipt(site, outcome, site.folder / "evidence-3")


def main() -> int:
    """Runs the stories; 0 when every claim held."""
    began = time.monotonic()
    with Site.make() as site, PaymentsServer.start(site.folder) as payments:
        try:
            say("setting up: a payment provider (MCP) with reviewed tools, keys, the daemon")
            site.configure(payments.url)
            site.pin()
            site.start()
            for number, story in enumerate((first, second, third)):
                console.rule(f"[bold]{number + 1}[/]", align="left")
                console.print(f"[bold]{_STORIES[number]}[/]")
                story(site, payments)
            console.rule()
            check("the daemon stops in order", site.stop() == 0)
            verified = site.command("ledger", "verify", "--config", str(site.config))
            check(f"the whole ledger verifies: {verified.split(',')[0]}", verified.endswith("verified\n"))
        except (Failed, RuntimeError, CallError) as failure:
            _failed(site, failure)
            return 1
        folder = site.folder
    if folder.exists():
        console.print(f"[red]✗[/] {folder} is still there")
        return 1
    console.print(f"[green bold]All claims held[/], in {time.monotonic() - began:.0f} s; nothing is left behind.")
    return 0


def _failed(site: Site, failure: Exception) -> None:
    """What did not hold, and the last lines that the daemon logged."""
    console.print("[red bold]The demo failed:[/]")
    console.print(str(failure), markup=False)
    said = site.said().splitlines()[-LOG_LINES:]
    if said:
        console.print(f"[dim]the last {len(said)} lines of the daemon's log:[/]")
        console.print("\n".join(said), markup=False)


if __name__ == "__main__":
    sys.exit(main())
