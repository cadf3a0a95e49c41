"""A verdict that is on record outlives a death, also where nobody can be asked any more."""

from __future__ import annotations

import signal

import pytest

from kblockd.client import Held, UnavailableError, UpstreamError
from kblockd.domain.outcome import Finding
from tests.crash.daemon.forked import ForkedSite
from tests.crash.load.plan import DAEMON, UPSTREAM, Wanted, contracts
from tests.crash.load.provider import Fate, Provider


def test_ver_06_rec_10_a_prohibited_verdict_is_not_taken_back_by_a_read_that_fails() -> None:
    """VER-06, REC-10: prohibited is on record, the daemon dies, and the provider is away when it comes back. It is
    known that the effect is not what was agreed, so an operator's "present" makes no success of it (R268, R501)."""
    call = Wanted(f"{Fate.WRONG}-1", "demo.refund", "demo").call()
    with ForkedSite.forking() as site:
        with Provider.start(site.folder) as provider:
            site.configure(provider.url, contracts=contracts(), upstream=UPSTREAM, daemon=DAEMON)
            site.pin()
            site.start("verify:headed=kill")
            with site.client() as agent, pytest.raises(UnavailableError):
                agent.execute(call)
            assert site.wait_dead() == -signal.SIGKILL
        site.start()
        with site.client() as agent, site.client("operator") as operator:
            held = agent.execute(call)
            assert isinstance(held, Held)
            sealed = operator.resolve(held.execution_id, Finding.PRESENT, "seen in the provider's books")
            assert isinstance(sealed, UpstreamError)
            assert sealed.result_class == held.result_class == "failed_after_side_effect"
