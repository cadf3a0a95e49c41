"""What callers, approvers and auditors are shown: nothing that deceives, nothing of others, nothing secret."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.approvals.quoting import quote, warnings
from kblockd.client.errors import CallError, NotFoundError, PermissionDeniedError
from kblockd.upstream.adapter import Outcome, Sent, ToolCall
from kblockd.upstream.address_guard import is_global_unicast
from kblockd.upstream.credentials import Credential
from kblockd.upstream.wrapper import CallLimits, GuardedAdapter
from tests.harness import approve, refund
from tests.integration.pipeline.local import LocalSite, ask, order, records, run_approved
from tests.security.hostile.fuzz import configured, walk
from tests.upstreams.payments import PaymentsServer

# What approvers see ---------------------------------------------------------------------------------------------------

LOOK_ALIKES = {
    "full-width": "Ａ-1",
    "full-width digits": "A-１００",
    "styled digits": "𝟏𝟎𝟎.00",
    "Arabic digits": "A-١٠٠",
    "ligature": "oﬃce",
    "superscript": "A-1²",
}
BLANKS = {
    "Hangul filler": "A-1\u3164",
    "half-width filler": "A-\uffa01",
    "Braille blank": "A-1\u2800",
    "variation selector": "A-1\ufe0f",
    "tag selector": "A-1\U000e0101",
    "grapheme joiner": "A\u034f-1",
    "no-break space": "A\u00a0-1",
    "zero-width space": "A\u200b-1",
    "struck out": "1\u03360\u0336000.00",
    "enclosed": "1\u20de00",
}


@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=LOOK_ALIKES.keys())
def test_approvers_are_warned_of_what_an_upstream_may_fold(text: str) -> None:
    """Another target for the guards, the same one for an upstream that normalises: at least the approver knows."""
    assert any("stand for others" in warning for warning in warnings({"order_id": text}))


@pytest.mark.parametrize("text", BLANKS.values(), ids=BLANKS.keys())
def test_what_shows_as_nothing_is_escaped_and_said(text: str) -> None:
    shown = quote(text)
    assert shown.isascii()
    assert "\\u" in shown.lower()
    assert any("invisible" in warning for warning in warnings({"order_id": text}))


@pytest.mark.parametrize("text", ["A-1", "Zürich", "naïve café", "Привет мир", "日本語", "refund: 100 %"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert warnings({"memo": text}) == []
    assert quote(text) == f'"{text}"'


def test_junk_cannot_push_out_that_there_is_more() -> None:
    """An agent that fills the list of warnings hides the one that matters; so the list says that it was cut."""
    found = warnings({f"a{n:03}": "\u200b" for n in range(100)} | {"order_id": "Ａ-1"})
    assert len(found) == 20
    assert found[0].startswith("82 more warnings")


# What upstreams may not put in --------------------------------------------------------------------------------------


class _Echo:
    """Answers whatever it was made with."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    async def read(self, call: ToolCall) -> Outcome:
        return self._outcome

    invoke = read


async def _answered(outcome: Outcome, tmp_path: Path) -> Outcome:
    write, read = tmp_path / "write", tmp_path / "read"
    for file, text in ((write, "Bearer write-secret-1"), (read, "Bearer read-secret-2")):
        file.write_text(text)
        file.chmod(0o600)
    adapter: object = _Echo(outcome)
    guarded = GuardedAdapter(
        adapter,  # type: ignore[arg-type]  # the two methods that are called
        credential=Credential(f"file:{read}"),
        other=Credential(f"file:{write}"),
        slots=asyncio.Semaphore(1),
        limits=CallLimits(4096),
    )
    loop = asyncio.get_running_loop()
    return await guarded.read(ToolCall("t", {}, "", "none", "", loop.time() + 5, None, {}))


async def test_a_read_that_echoes_the_write_credential_is_scrubbed(tmp_path: Path) -> None:
    """R478, R636: the upstream knows both identities; a snapshot may be revealed to the agent."""
    outcome = await _answered(Outcome(Sent.ANSWERED, output={"seen": "write-secret-1 and read-secret-2"}), tmp_path)
    assert "secret" not in str(outcome.output)


async def test_identifiers_of_the_upstream_are_no_free_text(tmp_path: Path) -> None:
    """R202, C17: request ids go into the ledger; a sentence in their place becomes its digest."""
    ids = {"request": "req-7", "note": "call John Doe at 555-1234", "long": "i" * 300}
    outcome = await _answered(Outcome(Sent.ANSWERED, request_ids=ids), tmp_path)
    assert outcome.request_ids["request"] == "req-7"
    assert outcome.request_ids["note"].startswith("sha256:")
    assert outcome.request_ids["long"].startswith("sha256:")


@pytest.mark.parametrize("operation", ["o" * 300, "job of John Doe", "op\n1"])
async def test_an_operation_that_cannot_be_kept_whole_is_unknown(operation: str, tmp_path: Path) -> None:
    """OUT-10: one that was cut would ask for another operation's state."""
    outcome = await _answered(Outcome(Sent.ACCEPTED, operation=operation), tmp_path)
    assert (outcome.sent, outcome.code) == (Sent.LOST, "OPERATION_UNUSABLE")


@pytest.mark.parametrize("address", ["64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::"])
def test_htp_10_an_address_that_carries_another_is_not_global(address: str) -> None:
    """R626: NAT64 and 6to4 reach whatever IPv4 address stands inside."""
    assert not is_global_unicast(ipaddress.ip_address(address))


# Whose rows ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(site: LocalSite) -> tuple[str, str, str]:
    """(execution, approval, caller key) of the agent's finished refund."""
    key = order()
    pending = ask(site, refund(key, key=key))
    approve(site, pending.approval_id)
    return pending.execution_id, pending.approval_id, key


def test_another_agent_sees_nothing(site: LocalSite, done: tuple[str, str, str]) -> None:
    """R010, kblockd/rpc/README.md#who-calls: filters hold for each way to a row."""
    execution_id, approval_id, key = done
    with site.client("other") as other:
        assert execution_id not in [answer.execution_id for answer in other.list(page_size=100).items]
        for look in (
            lambda: other.get(execution_id=execution_id),
            lambda: other.get(caller_key=key),
            lambda: list(other.watch(execution_id)),
        ):
            with pytest.raises(NotFoundError):
                look()
        for call in (lambda: other.approval(approval_id), lambda: other.receipt(execution_id), other.read_ledger):
            with pytest.raises(PermissionDeniedError):
                call()


def test_another_agents_key_is_another_key(site: LocalSite, done: tuple[str, str, str]) -> None:
    """C9: the same text as key, from another agent, binds nothing of the first one's."""
    _, _, key = done
    with site.client("other") as other:
        answer = other.execute(refund(order(), key=key))
    assert answer.replayed is False


def test_an_approver_cannot_execute_and_an_agent_cannot_decide(site: LocalSite, done: tuple[str, str, str]) -> None:
    """The confused deputy: each socket is one principal, and its methods are its own."""
    with site.client("lead") as lead, pytest.raises(PermissionDeniedError):
        lead.execute(refund(order()))
    with site.client() as agent, pytest.raises(CallError):
        agent.decide(done[1], action_sha256="0" * 64, presented_sha256="0" * 64, verdict="approve", reason="mine")


def test_the_records_hold_no_argument_and_no_reason(site: LocalSite) -> None:
    """C17: what a person wrote, and what an agent asked for, stays in deletable payloads."""
    mine = order()
    answer = run_approved(site, refund(mine, amount="12.34"))
    text = str(records(site, answer.execution_id))
    assert "12.34" not in text
    assert "as agreed" not in text


# Everything at once -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(payments: PaymentsServer) -> Iterator[LocalSite]:
    """A daemon that may be told anything."""
    with LocalSite.make() as made:
        configured(made, payments.url)
        made.start()
        yield made


@pytest.mark.parametrize("seed", [20261129, 7])
def test_hostile_requests_are_refused_clearly(fuzzed: LocalSite, seed: int) -> None:
    """IDM-19, CAN-13: no INTERNAL, no hang, nothing recorded for INVALID_ARGUMENT. Longer: tests/…/hostile/fuzz."""
    fuzzer = walk(fuzzed, 7.0, seed)
    assert fuzzer.faults == []
    assert fuzzer.codes["OK"] > 0
    assert fuzzer.codes["INVALID_ARGUMENT"] > 0
    fuzzed.wait_healthy()
