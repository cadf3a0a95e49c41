"""What must run as long as the daemon does not end unseen: nobody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from kblockd.background import cancel, spawn_endless
from kblockd.ending import Shutdown
from kblockd.execution.leases import Leases
from tests.integration.pipeline.local import LONG_LEASE, LocalSite, until


async def defect(*_: object) -> None:
    raise KeyError("of the heartbeat")


def test_rpc_03_a_daemon_whose_heartbeat_has_died_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """R166: no lease would be renewed any more, every call refused, and health would go on to say SERVING."""
    monkeypatch.setattr(Leases, "beat", defect)
    with LocalSite.make() as site:
        site.configure("http://127.0.0.1:9/mcp", daemon={"clocks": LONG_LEASE, "development": {"unpinned_tools": True}})
        site.start(wait=False)
        assert isinstance(site, LocalSite)
        daemon = site.daemon
        assert daemon is not None
        until(lambda: bool(daemon.ending.failed), 30)
        assert daemon.ending.failed.endswith("KeyError")


async def test_the_defect_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    task = spawn_endless(defect(), Shutdown())
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert "of the heartbeat" in caplog.text


async def test_work_that_is_cancelled_at_the_stop_is_no_failure() -> None:
    ending = Shutdown()
    await cancel(spawn_endless(asyncio.sleep(60), ending))
    await asyncio.sleep(0)
    assert not ending.failed
