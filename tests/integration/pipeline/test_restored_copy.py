"""A data directory that was put back from a copy: what it forgot, an upstream that knows effect keys still refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import LONG_LEASE, LocalSite, body, order, refund_in
from tests.integration.pipeline.shop import Shop

OPERATION = "bench.refund"  # policy allows it by itself, and no rule of it looks at what the order says
UNUSED = "http://127.0.0.1:9/mcp"
UNPROVED = {"verification": {"required": False, "maximum_duration_seconds": 1}}


@pytest.fixture
def shop() -> Iterator[Shop]:
    """It has each effect key only once."""
    with Shop() as made:
        made.shop.refunds.deduplicates = True
        yield made


@pytest.fixture
def site(shop: Shop) -> Iterator[LocalSite]:
    """Stopped, over an empty ledger."""
    with LocalSite.make() as made:
        change: dict[str, Any] = {"execution": {"credential_source": "none"}, "action": {"type": OPERATION}}
        contract = shops.contract("bench", {**change, **UNPROVED})
        contract["action"]["environment"] = "bench"
        file = made.config.parent / "upstreams" / "shop.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(shops.upstream(shop.url, {"write": "none", "read": "none"})))
        made.configure(UNUSED, contracts={OPERATION: contract}, daemon={"clocks": LONG_LEASE})
        made.pin("shop")
        yield made


def refund(site: LocalSite, order_id: str, key: str | None) -> tuple[Answer, str]:
    """The answer, and the effect key that was sent."""
    with site.client() as agent:
        done = agent.execute(refund_in("bench", order_id, key, operation=OPERATION))
    assert isinstance(done, Completed), done
    assert not done.replayed
    return done, body(site, done.execution_id, "execution.sent")["effect_key"]


def restored(site: LocalSite) -> None:
    """The daemon forgets everything since the copy was made."""
    site.stop()
    shutil.rmtree(site.data)
    shutil.copytree(site.folder / "copy", site.data, copy_function=shutil.copy2)
    site.start()


def test_evi_15_the_same_caller_key_has_the_same_effect_key_after_a_restore(site: LocalSite, shop: Shop) -> None:
    """EVI-15, R128, R129: the copy has never heard of the call; the upstream has, and the deed is done once."""
    mine = order()
    site.start()
    site.stop()
    shutil.copytree(site.data, site.folder / "copy", copy_function=shutil.copy2)
    site.start()
    first, sent = refund(site, mine, "refund-4711")
    restored(site)
    second, sent_again = refund(site, mine, "refund-4711")
    assert first.execution_id != second.execution_id
    assert sent == sent_again
    assert len(shop.calls) == 2
    assert len(shop.shop.of(mine)) == 1


def test_a_call_without_a_key_keeps_a_key_of_its_own(site: LocalSite, shop: Shop) -> None:
    """Two of them are two deeds, restored or not: nothing says that the second repeats the first."""
    mine = order()
    site.start()
    keys = [refund(site, mine, None)[1] for _ in range(2)]
    assert len(set(keys)) == 2
    assert len(shop.shop.of(mine)) == 2


def test_evi_15_another_agents_equal_key_is_another_deed(site: LocalSite, shop: Shop) -> None:
    """The caller key counts with its tenant and agent, as it does in the ledger (C9)."""
    mine = order()
    site.start()
    _, sent = refund(site, mine, "k")
    with site.client("other") as other:
        done = other.execute(refund_in("bench", mine, "k", operation=OPERATION))
    assert body(site, done.execution_id, "execution.sent")["effect_key"] != sent
