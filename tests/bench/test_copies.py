"""A store of copies is a ledger like any other: its own verification finds nothing."""

from __future__ import annotations

import pytest

from kblockd.store.database import open_view
from tests.bench import filled, servers
from tests.bench.daemon import BenchSite
from tests.bench.servers import Counterparts

COPIES = 300


@pytest.mark.soak
def test_copies_verify_and_the_daemon_goes_on_behind_them() -> None:
    """Records against rows and tree, then a start in order and one more execution."""
    with servers.running("upstream") as upstream, servers.running("rpc") as rpc, BenchSite.make() as site:
        with_ = Counterparts(upstream, rpc, (1,), 0.5)
        held, seconds = filled.hold(site, with_, COPIES)
        assert (held, seconds > 0) == (COPIES, True)
        assert "verified" in site.command("ledger", "verify", "--config", str(site.config))
        with open_view(site.data / "store") as view:
            before = sum(1 for _ in view.rows(("execution",)))
        assert before > COPIES
        assert filled.hold(site, with_, COPIES) == (COPIES, 0.0)
        site.start()
        site.stop()
        assert "verified" in site.command("ledger", "verify", "--config", str(site.config))
