"""What a plugin leaves running ignores its cancellation, or blocks the very end: a stop ends all the same."""

from __future__ import annotations

import pytest

from kblockd.client import Completed
from kblockd.watchdog import EXIT_STALLED
from tests.integration.stalls.answers import (
    STOP_SECONDS,
    check_unknown,
    check_well,
    execute,
    others_do_well,
)
from tests.integration.stalls.installed import Stalled


@pytest.mark.soak
def test_rpc_03_r182_a_call_that_ignores_its_cancellation_keeps_nobody(stalled: Stalled) -> None:
    """RPC-03, R182: unknown at its deadline; the daemon stops within its bounds in spite of it."""
    stalled.start()
    with others_do_well(stalled):
        check_unknown(stalled, [stalled.stalled("deaf")])
    check_well(stalled)
    assert stalled.site.stop(STOP_SECONDS) == 0
    assert "ignore their cancellation" in stalled.site.said()


@pytest.mark.soak
def test_rpc_03_tasks_that_ignore_their_cancellation_keep_nobody(stalled: Stalled) -> None:
    """RPC-03: some hundred that nobody knows of."""
    stalled.start()
    with others_do_well(stalled):
        for _ in range(4):
            check_well(stalled, "litter")
    assert stalled.site.stop(STOP_SECONDS) == 0


@pytest.mark.soak
@pytest.mark.parametrize(("closing", "code"), [("deaf", 0), ("block", EXIT_STALLED)])
def test_rpc_03_a_close_that_never_ends_keeps_nobody(stalled: Stalled, closing: str, code: int) -> None:
    """RPC-03: one that ignores its cancellation is left behind; one that blocks the loop meets the watchdog."""
    stalled.start(closing)
    call = stalled.stalled("well")
    answer = execute(stalled, call)
    assert isinstance(answer, Completed)
    assert stalled.site.stop(STOP_SECONDS) == code
    stalled.start()
    again = execute(stalled, call)
    assert (again.result_dsse, again.replayed) == (answer.result_dsse, True)
