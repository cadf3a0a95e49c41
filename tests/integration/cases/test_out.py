"""Work that the upstream accepted, and a daemon that dies before it has ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from kblockd.client.answers import Completed
from kblockd.client.errors import CallError
from tests.crash.daemon.forked import ForkedSite
from tests.harness import Site, approve
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.limits import UNUSED
from tests.integration.pipeline.local import ask, order, refund_in, until
from tests.integration.pipeline.shop import Shop, accepted


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """It answers every refund with an operation, which goes on until a test ends it."""
    with Shop() as made:
        yield made


@pytest.fixture(scope="module")
def site(shop: Shop) -> Iterator[ForkedSite]:
    """A daemon that can be killed, in front of it."""
    with ForkedSite.forking() as made:
        file = made.config.parent / "upstreams" / "shop.yaml"
        file.parent.mkdir(parents=True)
        sources = {}
        for name in ("write", "read"):
            secret = made.folder / name
            secret.touch(mode=0o600)
            secret.write_text(f"Bearer {name}\n")
            sources[name] = f"file:{secret}"
        file.write_text(json.dumps(shops.upstream(shop.url, sources)))
        made.configure(UNUSED, contracts={"refund.shop": shops.contract("shop", {})})
        made.pin("shop")
        yield made


def test_out_10_r717_a_kill_while_accepted_work_goes_on(site: ForkedSite, shop: Shop) -> None:
    """OUT-10, R717, R189, R204, and MCP-17 as far as it holds without tasks: the operation is on record, so the next
    life follows it to its end and proves the effect. The call itself is not made again."""
    site.start()
    mine = order()
    shop.shop.answers[mine] = accepted
    call = refund_in("shop", mine, key=mine)
    pending = ask(site, call)
    approve(site, pending.approval_id)
    waiting = threading.Thread(target=cut_off, args=(site, mine))
    waiting.start()
    with site.client() as agent:
        until(lambda: agent.get(execution_id=pending.execution_id).answer.phase == "accepted")
    site.kill()
    waiting.join(60)
    polled = polls(shop, mine)
    site.start()
    until(lambda: polls(shop, mine) > polled)
    shop.shop.done.set()
    with site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert done.result_class == "completed_verified"
    assert (len(shop.shop.of(mine)), len(shop.calls)) == (1, 1)


def cut_off(site: Site, mine: str) -> None:
    """The approved call, whose answer never comes."""
    with site.client() as agent, pytest.raises(CallError):
        agent.execute(refund_in("shop", mine, key=mine))


def polls(shop: Shop, mine: str) -> int:
    """How often the operation of an order was asked for."""
    [row] = shop.shop.of(mine)
    return sum(request.target == f"/operations/op-{row['refund_id']}" for request in shop.requests)
