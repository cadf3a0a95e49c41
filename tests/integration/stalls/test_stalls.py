"""A plugin that stalls the loop, raises what ends programs, or never answers: everybody else gets the right answer."""

from __future__ import annotations

from typing import Final

import pytest

from kblockd.client import Completed, InProgress, UnavailableError, UpstreamError
from kblockd.ending import EXIT_FAILED
from kblockd.watchdog import EXIT_STALLED
from tests.integration.stalls.answers import (
    STOP_SECONDS,
    check_completed,
    check_unknown,
    check_well,
    execute,
    execute_all,
    others_do_well,
)
from tests.integration.stalls.installed import Stalled

RAISING: Final = ("interrupt", "exit", "cancel", "own")


def test_out_08_r182_a_plugin_at_its_worst_harms_nobody_else(stalled: Stalled) -> None:
    """OUT-08, R182, R187: KeyboardInterrupt, SystemExit, a cancellation and a BaseException of its own, and a call that
    never returns, all at once: each is unknown at its deadline at the latest; and the daemon stops as it should."""
    stalled.start()
    with others_do_well(stalled):
        check_unknown(stalled, [stalled.stalled(behaviour) for behaviour in (*RAISING, "never")])
    check_well(stalled)
    assert stalled.site.stop(STOP_SECONDS) == 0


def test_lse_01_a_loop_that_is_blocked_for_longer_than_a_lease_ends_the_daemon(stalled: Stalled) -> None:
    """LSE-01, REC-08: the watchdog ends it; the next life repeats nothing of that call and settles the others."""
    stalled.start()
    blocked, others = stalled.stalled("block"), [stalled.other() for _ in range(3)]
    told, *_ = execute_all(stalled, [blocked, *others])
    assert isinstance(told, UnavailableError)
    assert stalled.site.wait_dead() == EXIT_STALLED
    assert "the event loop stalled" in stalled.site.said()
    stalled.start()
    answer = execute(stalled, blocked)
    assert isinstance(answer, InProgress | UpstreamError), answer
    assert (answer.outcome_unknown or answer.state == "executing", stalled.effects(blocked)) == (True, 1)
    for other, said in zip(others, execute_all(stalled, others), strict=True):
        if isinstance(said, UpstreamError):  # the stall fell between its marker and its call: proved absent, not sent
            assert (said.code, said.executed, stalled.effects(other)) == ("INTERRUPTED", False, 0)
        else:
            check_completed(stalled, [other], [said], "completed_verified")


@pytest.mark.soak
def test_lse_01_a_loop_that_is_blocked_for_less_than_a_lease(stalled: Stalled) -> None:
    """LSE-01, REC-01: everybody waits; the answer counts, and nobody loses a lease."""
    stalled.start()
    before = len(stalled.site.log.read_text())
    with others_do_well(stalled):
        check_well(stalled, "brief")
    assert "a lease ended" not in stalled.site.log.read_text()[before:]


@pytest.mark.soak
@pytest.mark.parametrize("behaviour", [*RAISING, "never"])
def test_out_08_what_is_no_answer_is_an_unknown_outcome(stalled: Stalled, behaviour: str) -> None:
    """OUT-08, R182, R187: each by itself."""
    stalled.start()
    with others_do_well(stalled):
        check_unknown(stalled, [stalled.stalled(behaviour)])
    check_well(stalled)
    assert stalled.site.stop(STOP_SECONDS) == 0


@pytest.mark.soak
def test_rpc_03_tasks_that_a_plugin_leaves_behind_keep_nobody(stalled: Stalled) -> None:
    """RPC-03: some hundred: answers are right, and a stop ends."""
    stalled.start()
    with others_do_well(stalled):
        for _ in range(4):
            check_well(stalled, "leak")
    assert stalled.site.stop(STOP_SECONDS) == 0


@pytest.mark.soak
@pytest.mark.parametrize("closing", ["never", *RAISING])
def test_rpc_03_an_adapter_that_does_not_close_keeps_nobody(stalled: Stalled, closing: str) -> None:
    """RPC-03: bounded, and contained, whatever ``close`` does; what was answered is on disk, and the stop was
    one in order."""
    stalled.start(closing)
    call = stalled.stalled("well")
    answer = execute(stalled, call)
    assert isinstance(answer, Completed)
    assert stalled.site.stop(STOP_SECONDS) == 0
    assert "did not close" in stalled.site.said()
    stalled.start()
    again = execute(stalled, call)
    assert (again.result_dsse, again.replayed) == (answer.result_dsse, True)


def test_rpc_03_a_task_that_ends_the_loop_is_no_orderly_stop(stalled: Stalled) -> None:
    """RPC-03: SystemExit(0) in a task that a plugin left behind takes the process along: never as if it had been
    told to stop; the next life is well, and nothing is done twice."""
    stalled.start()
    call, others = stalled.stalled("bomb"), [stalled.other() for _ in range(2)]
    assert isinstance(execute(stalled, call), Completed | UnavailableError)
    assert stalled.site.wait_dead() == EXIT_FAILED
    assert "a SystemExit from a foreign task" in stalled.site.said()
    stalled.start()
    check_completed(stalled, others, execute_all(stalled, others), "completed_verified")
    assert stalled.effects(call) == 1
