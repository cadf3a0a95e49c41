"""``kblockctl`` against a real server: what is printed, what is asked, what the shell learns."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner, Result

from kblockd.cli import timeline
from kblockd.cli.kblockctl import kblockctl
from kblockd.domain import errors
from kblockd.domain.errors import Reason
from kblockd.domain.outcome import CallStatus, Finding, StageEvent
from tests.unit.rpc.fakes import AGENT, APPROVAL, COMPLETED, EVENTS, HEX, LEAD, OPERATOR, PENDING, Daemon, in_thread

EXECUTE = ("execute", "payment.refund.create", "-e", "production", "-t", "A-1", "--key", "key-1", "-j", '{"a": "1"}')
HOSTILE = '\x1b[2J\x1b]0;owned\x07 "ok" [bold]\u202egnp.exe\u200b\r\n'
Run = Callable[..., Result]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with in_thread(tmp_path) as serving:
        yield serving


@pytest.fixture
def run(daemon: Daemon) -> Run:
    def command(*arguments: str, who: str = "agent", input: str | None = None) -> Result:
        environment = {"KBLOCKD_SOCKET": f"{daemon.folder}/{who}.sock", "COLUMNS": "200", "NO_COLOR": "1"}
        return CliRunner().invoke(kblockctl, list(arguments), input=input, env=environment)

    return command


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (CallStatus.COMPLETED, 0),
        (CallStatus.UPSTREAM_ERROR, 4),
        (CallStatus.APPROVAL_PENDING, 3),
        (CallStatus.DENIED, 4),
        (CallStatus.IN_PROGRESS, 3),
        (CallStatus.HELD, 3),
    ],
)
def test_the_exit_code_says_where_it_stands(daemon: Daemon, run: Run, status: CallStatus, code: int) -> None:
    daemon.executions.answers = [replace(COMPLETED, status=status)]
    shown = run(*EXECUTE)
    assert shown.exit_code == code
    assert status.value in shown.stdout
    as_json = run(*EXECUTE, "--json")
    assert as_json.exit_code == code
    document = json.loads(as_json.stdout)
    assert (document["status"], document["key"], document["output"]) == (status.value, "key-1", {"refund": "r-1"})


def test_execute_sends_what_was_asked(daemon: Daemon, run: Run, tmp_path: Path) -> None:
    arguments = tmp_path / "args.json"
    arguments.write_text('{"b": 2, "a": "x"}')
    done = run(
        "execute", "op", "-e", "test", "-t", "A-1", "--target-type", "order", "--target-version", "v1", "-a",
        str(arguments), "--wait", "0", "--approval-id", "appr_1", "--policy-revision", "r1", "--request-timeout", "5",
        "--maximum-attempts", "2",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    ((principal, envelope, wait, _),) = daemon.executions.calls
    assert (principal, wait) == (AGENT, 0.0)
    assert (envelope.target.type, envelope.target.id, envelope.target.version) == ("order", "A-1", "v1")
    assert envelope.arguments_json == b'{"a":"x","b":2}'
    assert (envelope.approval_id, envelope.policy_revision) == ("appr_1", "r1")
    assert (envelope.request_timeout, envelope.maximum_attempts) == (5.0, 2)
    assert envelope.has_caller_key
    assert envelope.caller_key in done.stdout


def test_arguments_come_from_stdin_too_and_are_checked(daemon: Daemon, run: Run) -> None:
    start = ("execute", "op", "-e", "test", "-t", "A-1")
    assert run(*start, "-a", "-", input='{"a": 1}').exit_code == 0
    assert run(*start).exit_code == 2
    assert run(*start, "-j", "{}", "-a", "-").exit_code == 2
    wrong = run(*start, "-j", '{"a": 1, "a": 2}')
    assert wrong.exit_code == 2
    assert "--args-json: the key 'a' stands twice" in wrong.stderr
    wrong = run(*start, "-a", "-", input="[]")
    assert (wrong.exit_code, "--args: the top level must be an object" in wrong.stderr) == (2, True)
    assert len(daemon.executions.calls) == 1


@pytest.mark.parametrize("option", ["--wait", "--approval-wait", "--request-timeout"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "soon"])
def test_what_is_no_time_is_wrong_usage(daemon: Daemon, run: Run, option: str, seconds: str) -> None:
    wrong = run(*EXECUTE, option, seconds)
    assert (wrong.exit_code, option in wrong.stderr) == (2, True)
    assert daemon.executions.calls == []


def test_execute_waits_for_an_approval_and_goes_on(daemon: Daemon, run: Run) -> None:
    """R361."""
    daemon.executions.answers = [PENDING, COMPLETED]
    daemon.executions.stored = replace(PENDING, state="approved")  # as the daemon answers: pending until it runs
    done = run(*EXECUTE, "--approval-wait", "20")
    assert done.exit_code == 0
    assert "waiting for approval appr_1" in done.stderr
    assert len(daemon.executions.calls) == 2


def test_an_approval_that_does_not_come_is_not_finished(daemon: Daemon, run: Run) -> None:
    daemon.executions.answers = [PENDING]
    daemon.executions.stored = PENDING
    assert run(*EXECUTE, "--approval-wait", "0").exit_code == 3


def test_a_refusal_says_reason_and_next_step(daemon: Daemon, run: Run) -> None:
    """R673."""
    daemon.executions.answers = [errors.FailedPrecondition(Reason.TWIN_UNRESOLVED, "a twin", next_step="look it up")]
    shown = run(*EXECUTE)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr == "TWIN_UNRESOLVED: a twin\nnext: look it up\n"
    document = json.loads(run(*EXECUTE, "--json").stdout)
    assert (document["error"], document["executed"], document["outcome_unknown"]) == ("TWIN_UNRESOLVED", False, False)


def test_no_answer_names_the_key_to_repeat_with(daemon: Daemon, run: Run, tmp_path: Path) -> None:
    """R671, R672."""
    (tmp_path / "agent.sock").unlink()
    shown = run(*EXECUTE)
    assert shown.exit_code == 5
    assert "NETWORK_ERROR" in shown.stderr
    assert "--key key-1" in shown.stderr
    document = json.loads(run(*EXECUTE, "--json").stdout)
    assert (document["outcome_unknown"], document["key"]) == (True, "key-1")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_who_breaks_a_call_off_learns_its_key(daemon: Daemon, form: tuple[str, ...]) -> None:
    """R672: Ctrl-C stops the waiting, not the action; without the key a second call would be a second deed."""
    daemon.executions.hold = asyncio.Event()
    script = str(Path(sys.executable).with_name("kblockctl"))
    # Whoever runs the suite in the background has had SIGINT ignored, for all its children.
    heeding = "import os, signal as s, sys; s.signal(s.SIGINT, s.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", heeding, script, "--socket", f"{daemon.folder}/agent.sock"]
    command += [*EXECUTE[:6], *EXECUTE[8:], *form]  # without --key
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        end = time.monotonic() + 60
        while not daemon.executions.calls:
            assert time.monotonic() < end, child.poll()
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=60)
    key = daemon.executions.calls[0][1].caller_key
    assert child.returncode == 5
    assert said.startswith(f"key {key}\n")
    if form:
        document = json.loads(out)
        assert (document["error"], document["outcome_unknown"], document["key"]) == ("INTERRUPTED", True, key)
    else:
        assert f"--key {key}" in said


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_full_disk_behind_standard_output_is_a_sentence(daemon: Daemon, form: tuple[str, ...]) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        done = script(daemon, "approvals", "appr_1", *form, to=full)
    assert done.returncode == 1
    assert done.stderr.startswith("standard output: No space left on device; ")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_has_enough_is_no_error(daemon: Daemon) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as out:
        assert script(daemon, "ledger", "checkpoint", to=out).stderr == ""


def script(daemon: Daemon, *arguments: str, to: IO[bytes]) -> subprocess.CompletedProcess[str]:
    """The installed script, its standard output into ``to``."""
    command = [str(Path(sys.executable).with_name("kblockctl")), "--socket", f"{daemon.folder}/lead.sock", *arguments]
    return subprocess.run(command, stdout=to, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def test_a_read_that_reaches_nobody_says_where_to_look(daemon: Daemon, run: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.sock").unlink()
    shown = run("list")
    assert (shown.exit_code, "--socket is right" in shown.stderr) == (1, True)


def test_foreign_text_never_drives_the_terminal(daemon: Daemon, run: Run) -> None:
    """Text of an upstream or an agent is quoted and escaped, in every command and in JSON too."""
    hostile = replace(COMPLETED, detail=HOSTILE, code=HOSTILE, output_json=json.dumps({"a": HOSTILE}).encode())
    daemon.executions.answers = [hostile]
    daemon.executions.stored = hostile
    daemon.executions.events = [replace(event, code=HOSTILE, name=HOSTILE) for event in daemon.executions.events]
    daemon.approvals.shown = replace(
        APPROVAL, summary=HOSTILE, requester=HOSTILE, warnings=(HOSTILE,), intent_json=json.dumps(HOSTILE).encode(),
        arguments_json=HOSTILE.encode(),
    )  # fmt: skip
    commands = [
        EXECUTE, ("get", "exec_1"), ("list",), ("watch", "exec_1"), ("timeline", "exec_1"), ("approvals",),
        ("approvals", "appr_1"), ("deny", "appr_1"),
    ]  # fmt: skip
    for command in commands:
        for arguments in (command, (*command, "--json")):
            result = run(*arguments)
            text = result.stdout + result.stderr
            assert not {"\x1b", "\x07", "\r", "\u202e", "\u200b"} & set(text), arguments
    assert (
        '"\\u001b[2J\\u001b]0;owned\\u0007 \\"ok\\" [bold]\\u202egnp.exe\\u200b\\u000d\\u000a"' in run(*EXECUTE).stdout
    )


def test_get_by_id_and_by_key(daemon: Daemon, run: Run) -> None:
    assert json.loads(run("get", "exec_1", "--json").stdout)["events"][0]["stages"] == [[0, 12], [1, 340], [2, 25]]
    assert run("get", "--key", "key-1").exit_code == 0
    assert [asked[3:] for asked in daemon.executions.asked] == [("exec_1", ""), ("", "key-1")]
    assert run("get").exit_code == 2
    assert run("get", "exec_1", "--key", "key-1").exit_code == 2
    assert run("get", "exec_none").exit_code == 1


def test_list(daemon: Daemon, run: Run) -> None:
    shown = run("list", "--state", "held", "--limit", "5")
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["execution", "status", "state", "/", "result", "code", "approval"]
    assert [line.split() for line in lines[1:3]] == [
        ["exec_1", "completed", "succeeded"],
        ["completed_verified", "appr_1"],
    ]
    assert "more: --page-token next" in shown.stderr
    assert daemon.executions.asked[0][2:] == (5, "", ("held",))
    assert run("list", "--state", "asleep").exit_code == 2


TIMELINE = """\
at stage took record # code
00 authenticate 12 µs ▏
01 admit 340 µs ▏
02 replay 25 µs ▏
+0.000 s 03 decide execution.proposed 3
05 preflight 9 ms ▏
+2.000 s 09 consume 4 ms ▏ execution.claimed 9
11 dispatch 1.2 s ████████████████████████
+3.000 s 12 classify attempt.outcome 12 UPSTREAM_TIMEOUT
"""
START = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


def event(index: int, stage: int, *stages: tuple[int, int], code: str = "") -> StageEvent:
    at = START + dt.timedelta(milliseconds=index)
    return StageEvent(index, stage, "", at, 0, "some.record", code, stages)


def test_the_timeline_shows_stages_durations_and_bars(daemon: Daemon, run: Run) -> None:
    """The stages of one execution, on one screen."""
    first, second, third = daemon.executions.events
    daemon.executions.events = [
        first,
        replace(second, stages=((5, 9_000),)),
        replace(third, stages=((9, 4_000), (11, 1_200_000))),
    ]
    shown = [line.split() for line in run("timeline", "exec_1").stdout.splitlines()]
    assert shown == [line.split() for line in TIMELINE.splitlines()]
    events = json.loads(run("timeline", "exec_1", "--json").stdout)["events"]
    assert [event["stages"] for event in events][1:] == [[[5, 9_000]], [[9, 4_000], [11, 1_200_000]]]


@pytest.mark.parametrize("width", [60, 80, 110])
def test_the_timeline_cuts_codes_and_never_wraps(daemon: Daemon, run: Run, width: int) -> None:
    long = "A_VERY_LONG_CODE_THAT_FITS_NOWHERE_" * 4
    daemon.executions.events = [
        replace(one, record_type="approval.requested", code=long, stages=((0, 1), (9, 5))) for one in EVENTS
    ]
    environment = {"KBLOCKD_SOCKET": f"{daemon.folder}/agent.sock", "COLUMNS": str(max(width, 76)), "NO_COLOR": "1"}
    lines = CliRunner().invoke(kblockctl, ["timeline", "exec_1"], env=environment).stdout.splitlines()
    assert len(lines) == 1 + len(timeline.steps(daemon.executions.events))
    assert max(map(len, lines)) <= max(width, 76)
    assert sum("…" in line for line in lines) == len(EVENTS)


def test_a_stage_stands_once_for_each_time_that_it_ran() -> None:
    """Another attempt and a life after a kill repeat stages, in order; a killed stage's time stays unknown."""
    events = [
        event(1, 9, (5, 50), (8, 80)),  # consumed, then killed
        event(2, 10, (5, 51), (8, 81), (9, 91)),  # back in at 5 (9r): consume runs, and writes nothing
        event(3, 12, (10, 100), (11, 110)),
        event(4, 13, (12, 120)),
        event(5, 13),  # two records of one stage
        event(6, 10, (13, 130), (15, 150), (5, 52), (9, 92)),  # another attempt
        event(7, 16, (10, 101)),
    ]
    assert [(step.stage, step.took, step.event and step.event.ledger_index) for step in timeline.steps(events)] == [
        (5, 50, None), (8, 80, None), (9, None, 1),
        (5, 51, None), (8, 81, None), (9, 91, None), (10, 100, 2), (11, 110, None), (12, 120, 3), (13, 130, 4),
        (13, None, 5), (15, 150, None), (5, 52, None), (9, 92, None), (10, 101, 6), (16, None, 7),
    ]  # fmt: skip


def test_lists_never_cut_an_id(daemon: Daemon, run: Run) -> None:
    """What is listed can be pasted into the next command, at 80 columns too."""
    approval_id, execution_id = "apr_" + "0" * 32, "exe_" + "1" * 32
    daemon.approvals.shown = replace(APPROVAL, approval_id=approval_id, state="approved", risk_tier="critical")
    daemon.executions.stored = replace(COMPLETED, execution_id=execution_id, approval_id=approval_id)
    for command, name in (("approvals", "lead"), ("list", "agent")):
        environment = {"KBLOCKD_SOCKET": f"{daemon.folder}/{name}.sock", "COLUMNS": "80", "NO_COLOR": "1"}
        shown = CliRunner().invoke(kblockctl, [command], env=environment).stdout
        assert approval_id in shown
        assert (command == "approvals") or (execution_id in shown)
        # Nothing is wrapped either: two lines each, below the heading.
        assert [line[:4] == "    " for line in shown.splitlines()][:3] == [False, False, True]


def test_watch_prints_one_line_a_record(run: Run) -> None:
    lines = run("watch", "exec_1", "--after", "3").stdout.splitlines()
    assert lines == [
        "12:00:02.123456  09 consume         execution.claimed #9",
        "12:00:03.123456  12 classify        attempt.outcome #12 UPSTREAM_TIMEOUT",
    ]
    documents = [json.loads(line) for line in run("watch", "exec_1", "--json").stdout.splitlines()]
    assert [document["ledger_index"] for document in documents] == [3, 9, 12]


def test_approvals(run: Run) -> None:
    shown = run("approvals", "--state", "pending", who="lead")
    assert "Refund 10.00 EUR for order A-1" in shown.stdout
    one = run("approvals", "appr_1", who="lead").stdout
    for part in (
        "Refund 10.00 EUR for order A-1",
        '"order": "A-1"',
        '"amount": "10.00"',
        "irreversible",
        HEX,
        "2 needed",
    ):
        assert part in one
    document = json.loads(run("approvals", "appr_1", "--json", who="lead").stdout)
    assert (document["intent"], document["arguments"]) == ({"order": "A-1"}, {"amount": "10.00"})


@pytest.mark.parametrize(("command", "state"), [("approve", "approved"), ("deny", "denied")])
def test_deciding_shows_first_and_asks(daemon: Daemon, run: Run, command: str, state: str) -> None:
    done = run(command, "appr_1", "--reason", "fine", who="lead", input="y\n")
    assert done.exit_code == 0, done.output
    assert "Refund 10.00 EUR for order A-1" in done.stdout
    assert "WARNING: irreversible" in done.stdout
    assert f"{command} exactly this?" in done.stdout
    assert f"appr_1 is {state}" in done.stdout
    assert daemon.approvals.decided == [(LEAD, "appr_1", HEX, "cd" * 32, command, "fine")]


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_nothing_is_decided_without_a_yes(daemon: Daemon, run: Run, answer: str) -> None:
    assert run("approve", "appr_1", who="lead", input=answer).exit_code == 1
    assert not daemon.approvals.decided


def test_yes_needs_both_digests_of_what_was_read(daemon: Daemon, run: Run) -> None:
    for given in ((), ("--action", HEX), ("--shown", "cd" * 32)):
        assert run("approve", "appr_1", "--yes", *given, who="lead").exit_code == 2
    assert run("approve", "appr_1", "--json", who="lead").exit_code == 2
    both = ("--action", HEX, "--shown", "cd" * 32)
    done = run("approve", "appr_1", "--yes", *both, "--json", who="lead")
    assert json.loads(done.stdout)["approval"]["state"] == "approved"
    assert len(daemon.approvals.decided) == 1


def test_a_digest_that_is_not_of_what_stands_there_decides_nothing(daemon: Daemon, run: Run) -> None:
    done = run("approve", "appr_1", "--shown", HEX, who="lead", input="y\n")
    assert (done.exit_code, "read it again" in done.stderr) == (1, True)
    assert not daemon.approvals.decided
    late = run("approve", "appr_1", "--yes", "--action", HEX, "--shown", HEX, who="lead")
    assert (late.exit_code, "SHOWN_DIFFERS" in late.stderr) == (1, True)


def test_revoking_does_not_ask(daemon: Daemon, run: Run) -> None:
    """What stops an action needs no reading first; an agent, which cannot read the approval, withdraws alike."""
    assert run("revoke", "appr_1").exit_code == 2
    done = run("revoke", "appr_1", "--reason", "not any more", "--json")
    assert json.loads(done.stdout) == {
        "approval_id": "appr_1",
        "execution_id": APPROVAL.execution_id,
        "ledger_index": 7,
    }
    assert daemon.approvals.revoked == [(AGENT, "appr_1", "not any more")]
    late = run("revoke", "appr_1", "--reason", "again", who="lead")
    assert (late.exit_code, "APPROVAL_NOT_VALID" in late.stderr) == (1, True)


def test_a_revocation_says_what_stops(daemon: Daemon, run: Run) -> None:
    done = run("revoke", "appr_1", "--reason", "not any more", who="lead")
    assert done.stdout == f"appr_1 is revoked; {APPROVAL.execution_id} can no longer run\n"
    assert daemon.approvals.revoked == [(LEAD, "appr_1", "not any more")]


def test_resolve(daemon: Daemon, run: Run) -> None:
    done = run("resolve", "exec_1", "--finding", "absent", "--reason", "looked", who="operator")
    assert done.exit_code == 0
    assert daemon.executions.asked == [("resolve", OPERATOR, "exec_1", Finding.ABSENT, "looked")]
    assert run("resolve", "exec_1", "--finding", "maybe", "--reason", "x").exit_code == 2


def test_ledger(run: Run) -> None:
    lines = run("ledger", "read", "--from", "1", "--limit", "2").stdout.splitlines()
    assert lines[1].split() == ["1", "2026-11-29T12:00:01.000000Z", "execution.proposed", "3", "exec_1"]
    document = json.loads(run("ledger", "read", "exec_1", "--json").stdout)
    assert [json.loads(leaf["leaf"])["type"] for leaf in document["leaves"]] == [
        "execution.proposed", "execution.claimed", "result.sealed",
    ]  # fmt: skip
    assert run("ledger", "checkpoint").stdout == "checkpoint 5\n"
    assert run("ledger", "proof", "3").stdout.startswith("c2sp.org/tlog-proof@v1")
    assert len(run("ledger", "proof", "--old-size", "2").stdout.splitlines()) == 3
    assert run("ledger", "proof").exit_code == 2
    assert run("ledger", "proof", "99").exit_code == 1


def test_receipt_get_prints_or_writes(run: Run, tmp_path: Path) -> None:
    assert '"p": 1' in run("receipt", "get", "exec_1").stdout
    document = json.loads(run("receipt", "get", "exec_1", "--json").stdout)
    assert (document["receipt_dsse"], document["result_dsse"]) == ({"p": 1}, {"r": 1})
    out = tmp_path / "evidence"
    assert run("receipt", "get", "exec_1", "--out", str(out)).exit_code == 0
    assert (out / "receipt.dsse.json").read_bytes() == COMPLETED.receipt_dsse
    assert (out / "result.dsse.json").read_bytes() == COMPLETED.result_dsse
    assert (out / "receipt.tlog-proof").read_text() == COMPLETED.receipt_proof


def test_a_receipt_that_is_not_there_yet(daemon: Daemon, run: Run) -> None:
    daemon.executions.stored = replace(PENDING, no_receipt_reason="waits for approval")
    shown = run("receipt", "get", "exec_1")
    assert (shown.exit_code, "no receipt yet: waits for approval" in shown.stderr) == (3, True)


def test_a_receipt_that_will_never_be_there(daemon: Daemon, run: Run) -> None:
    """A script that waits for it must end: what was refused, expired or withdrawn never ran."""
    daemon.executions.stored = replace(PENDING, status=CallStatus.DENIED, state="rejected")
    shown = run("receipt", "get", "exec_1")
    assert (shown.exit_code, "there will be none: the execution is rejected" in shown.stderr) == (4, True)
    as_json = run("receipt", "get", "exec_1", "--json")
    document = json.loads(as_json.stdout)
    assert (as_json.exit_code, document["error"], document["state"]) == (4, "NO_RECEIPT", "rejected")


def test_receipt_verify_refuses_what_nobody_signed(run: Run, tmp_path: Path) -> None:
    for name in ("root", "keyset"):
        (tmp_path / name).write_text("{}")
    pinned = ("--root", str(tmp_path / "root"), "--keyset", str(tmp_path / "keyset"))
    refused = run("receipt", "verify", "exec_1", *pinned)
    assert (refused.exit_code, refused.stdout.startswith("not verified: ")) == (1, True)
    assert json.loads(run("receipt", "verify", "exec_1", *pinned, "--json").stdout)["verdict"] == "not verified"
    assert run("receipt", "verify", *pinned).exit_code == 2


def test_without_a_socket_it_says_how_to_give_one() -> None:
    result = CliRunner().invoke(kblockctl, ["list"], env={"KBLOCKD_SOCKET": ""})
    assert (result.exit_code, "KBLOCKD_SOCKET" in result.stderr) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    result = CliRunner().invoke(kblockctl, ["completion", shell])
    assert result.exit_code == 0
    assert "_KBLOCKCTL_COMPLETE" in result.stdout


def test_every_command_has_json_and_a_sentence() -> None:
    def leaves(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
        for name, member in getattr(command, "commands", {}).items():
            yield from leaves(member, (*path, name))
        if not getattr(command, "commands", None):
            yield path, command

    for path, command in leaves(kblockctl):
        assert command.help, path
        if path != ("completion",):
            assert "--json" in {option for parameter in command.params for option in parameter.opts}, path
