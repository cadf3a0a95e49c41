"""The plugin against a server that is built on the official SDK, in both revisions; effects are counted in its file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.domain import canonical
from kblockd.upstream.adapter import AdapterFault, Sent
from tests.integration.mcp.rig import HANDSHAKE, MODERN, adapter, call, refund
from tests.upstreams.payments import PaymentsServer

PROTOCOLS = pytest.mark.parametrize("protocol", [MODERN, HANDSHAKE, "auto"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsServer]:
    with PaymentsServer.start(tmp_path_factory.mktemp("payments")) as server:
        yield server


@pytest.fixture
def payments(shared: PaymentsServer) -> Iterator[PaymentsServer]:
    """One process for the module; a test leaves no switch on."""
    if shared.process is None or shared.process.poll() is not None:
        shared.run()
    before = shared.control()
    yield shared
    if shared.process is not None and shared.process.poll() is None:
        shared.control(**before)


@PROTOCOLS
async def test_a_refund_is_made_read_and_found(payments: PaymentsServer, protocol: str) -> None:
    """R176, R189, R190, R199, R202, R207: the key arrives, reads and lookups see the effect, identifiers are kept."""
    opened = adapter(payments.url, protocol)
    order, key = f"ORD-{protocol}", f"key-{protocol}"
    made = await opened.invoke(refund(order, key=key))
    assert (made.sent, made.is_error, made.code) == (Sent.ANSWERED, False, "")
    assert made.output["status"] == "succeeded"
    assert len(made.raw_sha256) == 64
    assert made.request_ids["jsonrpc"]
    (effect,) = [effect for effect in payments.effects() if effect["order_id"] == order]
    assert (effect["effect_key"], effect["amount"]) == (key, "10.00")
    found = await opened.lookup(call("find_refund", {"key": key}))
    assert found.output["refund_id"] == effect["refund_id"]
    snapshot = await opened.read(call("get_order", {"order_id": order}))
    assert (snapshot.output["version"], snapshot.output["refunded"]) == (2, "10.00")
    listed = await opened.read(call("list_refunds", {"order_id": order}))
    assert [row["amount"] for row in listed.output["refunds"]] == ["10.00"]
    assert (await opened.lookup(call("find_refund", {"key": "none"}))).output["found"] is False


@PROTOCOLS
async def test_out_05_a_lost_answer_is_one_effect_and_lost(payments: PaymentsServer, protocol: str) -> None:
    """R183, R187, R188, R208: acts, drops; nothing is repeated; the lookup finds it."""
    opened = adapter(payments.url, protocol)
    count = len(payments.effects())
    payments.control(lose_answer_once=True)
    key = f"lost-{protocol}"
    assert (await opened.invoke(refund(key=key))).sent is Sent.LOST
    assert len(payments.effects()) == count + 1
    assert (await opened.lookup(call("find_refund", {"key": key}))).output["found"] is True


@PROTOCOLS
async def test_http_500_after_the_effect_is_lost(payments: PaymentsServer, protocol: str) -> None:
    """R183: HTTP 500 proves nothing."""
    payments.control(error_after_effect=True)
    count = len(payments.effects())
    outcome = await adapter(payments.url, protocol).invoke(refund())
    assert (outcome.sent, outcome.code) == (Sent.LOST, "HTTP_500")
    assert len(payments.effects()) == count + 1


@PROTOCOLS
async def test_mcp_06_is_error_after_the_effect(payments: PaymentsServer, protocol: str) -> None:
    """R238: an error answer with its own text; no class is guessed, nothing is repeated."""
    payments.control(is_error_after_effect=True)
    count = len(payments.effects())
    outcome = await adapter(payments.url, protocol).invoke(refund())
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.ANSWERED, True, "TOOL_ERROR")
    assert "bank" in outcome.detail
    assert len(payments.effects()) == count + 1


@PROTOCOLS
async def test_a_refusal_has_no_effect(payments: PaymentsServer, protocol: str) -> None:
    """The same answer as after an effect: only the contract may tell them apart."""
    payments.control(refuse=True)
    count = len(payments.effects())
    outcome = await adapter(payments.url, protocol).invoke(refund())
    assert (outcome.sent, outcome.is_error, outcome.code) == (Sent.ANSWERED, True, "TOOL_ERROR")
    assert len(payments.effects()) == count


@PROTOCOLS
async def test_out_02_the_provider_commits_after_our_deadline(payments: PaymentsServer, protocol: str) -> None:
    """LOST at the deadline; the effect comes later, once, and a read shows it."""
    payments.control(stall_before_seconds=1.5)
    opened = adapter(payments.url, protocol)
    key = f"late-{protocol}"
    outcome = await opened.invoke(refund(key=key, seconds=0.8))
    assert (outcome.sent, outcome.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    limit = time.monotonic() + 20
    while not (await opened.lookup(call("find_refund", {"key": key}))).output["found"]:
        assert time.monotonic() < limit
        await asyncio.sleep(0.1)
    assert sum(effect["effect_key"] == key for effect in payments.effects()) == 1


@PROTOCOLS
async def test_mcp_01_the_server_dies_inside_the_tool(payments: PaymentsServer, protocol: str) -> None:
    """LOST well before its deadline; the same adapter serves the next action."""
    opened = adapter(payments.url, protocol)
    count = len(payments.effects())
    payments.control(exit_after_effect=True)
    begun = time.monotonic()
    outcome = await opened.invoke(refund(seconds=30))
    assert outcome.sent is Sent.LOST
    assert time.monotonic() - begun < 20
    assert len(payments.effects()) == count + 1
    assert payments.process is not None
    payments.process.wait(10)
    assert (await opened.invoke(refund())).sent is Sent.NOT_SENT
    payments.run()
    assert (await opened.invoke(refund())).sent is Sent.ANSWERED
    assert len(payments.effects()) == count + 2


@PROTOCOLS
async def test_mcp_09_a_server_that_restarted_is_met_afresh(payments: PaymentsServer, protocol: str) -> None:
    """A restart between two actions bricks nothing: the second opens its own session and is made."""
    opened = adapter(payments.url, protocol)
    count = len(payments.effects())
    assert (await opened.invoke(refund())).sent is Sent.ANSWERED
    payments.kill()
    payments.run()
    assert (await opened.invoke(refund())).sent is Sent.ANSWERED
    assert (await opened.invoke(refund())).sent is Sent.ANSWERED
    assert len(payments.effects()) == count + 3


@PROTOCOLS
async def test_mcp_13_a_swapped_definition_has_another_digest(payments: PaymentsServer, protocol: str) -> None:
    """R017, R018, R032: read fresh each time; the other revision serves it in another order, one digest."""
    opened = adapter(payments.url, protocol)
    reviewed = canonical.digest((await opened.describe("refund")).definition)
    assert (await opened.describe("refund")).server_version == "3.2.0"
    other = adapter(payments.url, HANDSHAKE if protocol == MODERN else MODERN)
    assert canonical.digest((await other.describe("refund")).definition) == reviewed
    payments.control(swap_definition="Also sends a gift.")
    assert canonical.digest((await opened.describe("refund")).definition) != reviewed
    payments.control(swap_definition="")
    assert canonical.digest((await opened.describe("refund")).definition) == reviewed


@PROTOCOLS
async def test_credential_is_sent_and_missing_ones_are_told(payments: PaymentsServer, protocol: str) -> None:
    """R177: the Authorization header of the call, on each of its requests."""
    payments.control(reject_authorization="Bearer open-sesame")
    opened = adapter(payments.url, protocol)
    assert (await opened.invoke(call("get_order", {"order_id": "1"}, credential=b"Bearer open-sesame"))).output[
        "exists"
    ]
    wrong = await adapter(payments.url, protocol).invoke(call("get_order", {"order_id": "1"}, credential=b"Bearer no"))
    assert (wrong.sent, wrong.code) == (Sent.NOT_SENT, "UPSTREAM_UNAUTHORIZED")
    with pytest.raises(AdapterFault) as caught:
        await adapter(payments.url, protocol).describe("refund")
    assert caught.value.code == "UPSTREAM_UNAUTHORIZED"


@PROTOCOLS
async def test_unknown_tools_are_not_sent(payments: PaymentsServer, protocol: str) -> None:
    """The listing comes before the call."""
    opened = adapter(payments.url, protocol)
    outcome = await opened.invoke(call("transfer", {}))
    assert (outcome.sent, outcome.code) == (Sent.NOT_SENT, "TOOL_UNKNOWN")
    with pytest.raises(AdapterFault) as caught:
        await opened.describe("transfer")
    assert caught.value.code == "TOOL_UNKNOWN"


async def test_list_lag_and_restart_keep_the_book(tmp_path: Path) -> None:
    """The demo's server itself: lag hides a fresh refund from the list only, and effects survive SIGKILL."""
    with PaymentsServer.start(tmp_path) as server:
        opened = adapter(server.url)
        server.control(list_lag_seconds=3600)
        assert (await opened.invoke(refund("ORD-7", key="lag"))).sent is Sent.ANSWERED
        assert (await opened.read(call("list_refunds", {"order_id": "ORD-7"}))).output == {"refunds": []}
        assert (await opened.lookup(call("find_refund", {"key": "lag"}))).output["found"] is True
        server.kill()
        server.run()
        rows = (await opened.read(call("list_refunds", {"order_id": "ORD-7"}))).output["refunds"]
        assert [row["effect_key"] for row in rows] == ["lag"]
        assert len(server.effects()) == 1
