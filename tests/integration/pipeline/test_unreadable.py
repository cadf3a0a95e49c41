"""An answer that cannot be kept is a failed read: at 7, 13 and 14, and of the effect itself, before policy is asked.

The policy here is as careless as one can be: what is not there counts as good. It is never asked about such an answer.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kblockd.client.answers import Answer, Completed, Held
from kblockd.client.errors import FailedPreconditionError, UnavailableError
from tests.harness import ROOT
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.limits import UNUSED
from tests.integration.pipeline.local import LONG_LEASE, LocalSite, body, news, order, refund_in, size, types, until
from tests.integration.pipeline.shop import Shop
from tests.upstreams.messages import JSON, Reply, said

RULES = {
    "decision.rego": """
package kblock.decision
import rego.v1
result := {"effect": "allow", "approvals": {"count": 0, "roles": []}, "observe_until": "", "reasons": []}
""",
    "preconditions.rego": """
package kblock.preconditions
import rego.v1
default ok := true
ok := false if input.snapshot.locked
result := {"ok": ok, "stands": true, "reasons": []}
""",
    "verification.rego": """
package kblock.verification
import rego.v1
default verdict := "expected"
verdict := "prohibited" if input.read.there
result := {"verdict": verdict, "reasons": []}
""",
    "recovery.rego": """
package kblock.recovery
import rego.v1
result := {"recovery": "manual", "reasons": []}
""",
}
_SNAPSHOT, _VERIFY = (shops.refund_contract()["reads"][name] for name in ("snapshot", "verify"))
_LOOKUP = shops.refund_contract()["lookup"][0]
_OPTIONAL = {"required": False, "authoritative_read_tool": None}
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "refuse": {},
    "text": {
        "reads": {"snapshot": {**_SNAPSHOT, "numbers": "text"}, "verify": {**_VERIFY, "numbers": "text"}},
        "lookup": [{**_LOOKUP, "numbers": "text"}],
    },
    "unverified": {"reads": {"verify": None}, "verification": _OPTIONAL},
}
TEXTS = {
    "integer": (b'"n":12345678901234567890', "/n", "an integer beyond 2^53-1"),
    "decimal": (b'"n":0.12345678901234567890', "/n", "a number that no double holds exactly"),
    "twice": (b'"n":1,"n":2', "/n", "the same key twice in one object"),
    "nan": (b'"n":NaN', "/n", "NaN or an infinity"),
    "deep": (b'"n":' + b"[" * 33 + b"]" * 33, "/n/0/0", "nested deeper than 32 levels"),
    "mark": (b'\xef\xbb\xbf"n":1', "", "a byte-order mark"),
}


@pytest.fixture(scope="module")
def careless() -> Iterator[tuple[LocalSite, Shop]]:
    """A daemon with that policy, and the shop behind it."""
    with Shop() as shop, LocalSite.make() as made:
        policy = made.config.parent / "policy"
        policy.mkdir(parents=True)
        for name, text in RULES.items():
            (policy / name).write_text(text)
        shutil.copy(ROOT / "config" / "policy" / "authz.rego", policy)
        upstreams = made.config.parent / "upstreams"
        upstreams.mkdir()
        sources = {"write": "none", "read": "none"}
        (upstreams / "shop.yaml").write_text(json.dumps(shops.upstream(shop.url, sources)))
        base = {"execution": {"credential_source": "none", "maximum_concurrent_actions": 100}}
        contracts = {
            f"refund.{name}": shops.contract(name, {**base, "point_of_no_return": False, **change})
            for name, change in ENVIRONMENTS.items()
        }
        for contract in contracts.values():
            contract["recovery"]["irreversible_step"] = False
        made.configure(UNUSED, contracts=contracts, daemon={"clocks": {**LONG_LEASE, "reconcile_seconds": 8}})
        made.pin("shop")
        made.start()
        yield made, shop


@pytest.fixture
def site(careless: tuple[LocalSite, Shop]) -> LocalSite:
    return careless[0]


@pytest.fixture
def shop(careless: tuple[LocalSite, Shop]) -> Iterator[Shop]:
    """Well again afterwards."""
    yield careless[1]
    careless[1].well()


def raw(text: bytes) -> Callable[[], Reply]:
    return lambda: Reply(200, dict(JSON), text)


def execute(site: LocalSite, environment: str, order_id: str) -> Answer:
    with site.client() as agent:
        return agent.execute(refund_in(environment, order_id, key=order_id))


@pytest.mark.parametrize("name", TEXTS)
def test_ups_11_ups_18_a_snapshot_that_cannot_be_kept_refuses_the_call(site: LocalSite, shop: Shop, name: str) -> None:
    """UPS-11, UPS-18: TARGET_UNREADABLE with the place, not retryable; nothing is sent to a target that says that it is
    locked, the action stays approved, and it runs once its target can be read."""
    member, place, fault = TEXTS[name]
    mine = order()
    before = size(site)
    shop.shop.faults[f"/orders/{mine}"] = raw(b'{"exists":true,"locked":true,"version":1,' + member + b"}")
    with pytest.raises(FailedPreconditionError) as refused:
        execute(site, "refuse", mine)
    error = refused.value
    assert (error.reason, error.retryable, error.executed, error.consumed) == ("TARGET_UNREADABLE", False, False, False)
    assert f"unreadable at {place}" in error.message if place else "is unreadable: " in error.message
    assert fault in error.message
    assert "numbers: text" in error.next_step
    assert shop.shop.of(mine) == []
    until(lambda: "call.refused" in [r["type"] for r in news(site, before)])
    [record] = [r for r in news(site, before) if r["type"] == "call.refused"]
    assert record["body"]["reason"] == "TARGET_UNREADABLE"
    with site.client() as agent:
        assert agent.get(execution_id=error.execution_id).answer.state == "approved"
    shop.well()
    assert isinstance(execute(site, "refuse", mine), Completed)
    assert len(shop.shop.of(mine)) == 1


def test_ups_18_half_an_answer_may_be_whole_the_next_time(site: LocalSite, shop: Shop) -> None:
    """Not whole is not unreadable: UPSTREAM_UNAVAILABLE, retryable. What the upstream refuses stays refused."""
    for reply, retryable in (
        (raw(b'{"exists":tr'), True),
        (lambda: said(503, {}), True),
        (lambda: said(404, {}), False),
    ):
        mine = order()
        shop.shop.faults[f"/orders/{mine}"] = reply
        with pytest.raises(UnavailableError) as refused:
            execute(site, "refuse", mine)
        assert (refused.value.reason, refused.value.retryable) == ("UPSTREAM_UNAVAILABLE", retryable)
        assert ("repeat" in refused.value.next_step) is retryable


@pytest.mark.parametrize("name", TEXTS)
def test_ups_10_a_verification_read_that_cannot_be_kept_proves_nothing(site: LocalSite, shop: Shop, name: str) -> None:
    """UPS-10: inconclusive, so held; the policy, for which nothing there is success, is not asked."""
    mine = order()
    shop.shop.faults["/refunds"] = raw(b'{"there":true,' + TEXTS[name][0] + b"}")
    held = execute(site, "refuse", mine)
    assert isinstance(held, Held)
    assert held.code == "VERIFICATION_INCONCLUSIVE"
    found = body(site, held.execution_id, "finding.verified")
    code = "ANSWER_NOT_JSON" if name == "mark" else "RESULT_NOT_STORABLE"
    assert (found["verdict"], found["code"], found["read_sha256"]) == ("inconclusive", code, "")
    assert (found["decision_id"], found["policy_revision"]) == ("", "")


@pytest.mark.parametrize("name", TEXTS)
def test_ups_10_a_look_up_that_cannot_be_kept_proves_no_absence(site: LocalSite, shop: Shop, name: str) -> None:
    """UPS-10: acted, the answer is lost, and the look-up says absent in an answer that cannot be kept: unprovable."""
    mine = order()
    shop.shop.answers[mine] = lambda _: Reply(200, dict(JSON), b'{"ok":tr')
    shop.shop.faults["/lookup"] = raw(b'{"found":false,' + TEXTS[name][0] + b"}")
    held = execute(site, "refuse", mine)
    assert isinstance(held, Held)
    assert held.outcome_unknown
    assert body(site, held.execution_id, "finding.reconciled")["finding"] == "unprovable"
    assert len(shop.shop.of(mine)) == 1


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "mark"])
def test_ups_12_an_effect_that_does_not_say_whether_it_worked_is_unknown(
    site: LocalSite, shop: Shop, name: str
) -> None:
    """UPS-12: with ``success`` in the upstream's settings; looked up, and found by its effect key."""
    mine = order()
    shop.shop.answers[mine] = lambda _: Reply(200, dict(JSON), b'{"ok":false,' + TEXTS[name][0] + b"}")
    done = execute(site, "unverified", mine)
    outcome = body(site, done.execution_id, "attempt.outcome")
    assert (outcome["sent"], outcome["class"], outcome["code"]) == ("lost", "unknown_outcome", "RESULT_NOT_STORABLE")
    assert "finding.reconciled" in types(site, done.execution_id)
    assert "found by its effect key" in done.detail


def test_ups_18_numbers_as_text_reach_policy_and_verification(site: LocalSite, shop: Shop) -> None:
    """UPS-18: the contract's ``numbers: text`` at 7, 13 and 14: such answers can be kept, and are read."""
    mine = order()
    number = b'"n":12345678901234567890,"d":0.12345678901234567890'
    shop.shop.faults[f"/orders/{mine}"] = raw(
        b'\xef\xbb\xbf{"locked":false,"version":12345678901234567890,' + number + b"}"
    )
    shop.shop.answers[mine] = lambda _: Reply(200, dict(JSON), b'{"ok":tr')
    shop.shop.faults["/lookup"] = raw(b'{"found":true,' + number + b"}")
    shop.shop.faults["/refunds"] = raw(b'{"there":false,' + number + b"}")
    done = execute(site, "text", mine)
    assert isinstance(done, Completed)
    assert done.result_class == "completed_verified"
    assert body(site, done.execution_id, "finding.reconciled")["finding"] == "present"
    locked = order()
    shop.shop.faults[f"/orders/{locked}"] = raw(b'{"locked":true,"version":1,' + number + b"}")
    with pytest.raises(FailedPreconditionError) as refused:
        execute(site, "text", locked)
    assert refused.value.reason == "PRECONDITION_FAILED"
    assert shop.shop.of(locked) == []
