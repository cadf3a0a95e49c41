"""What an execution leaves behind: records without content, spans with the right tree, secrets nowhere."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kblockd.admission.offload import INLINE_BYTES
from kblockd.client.answers import Answer, Completed
from kblockd.client.calls import Call
from tests.harness import approve, merged
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import LONG_LEASE, LocalSite, ask, body, order, records, statement, until
from tests.integration.pipeline.shop import Shop
from tests.upstreams.messages import Request, said
from tests.upstreams.otlp_receiver import OtlpReceiver, Received

WRITE, READ = "Bearer write-9xkv", "Bearer read-3mtd"
MEMO = "memo for Mrs Ann Onymous"
AMOUNT = "77.13"
REASON = "reason that only people may read"
CUSTOMER = "snapshot customer"
OUTPUT = "output that stays outside"
CONTENT = [MEMO, AMOUNT, REASON, CUSTOMER, OUTPUT, WRITE, READ, "write-9xkv", "need an approval by finance"]
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@dataclass(frozen=True)
class World:
    """One execution with content everywhere that content can be."""

    site: LocalSite
    shop: Shop
    collector: OtlpReceiver
    done: Answer
    heard: _Heard
    order: str

    @property
    def tree(self) -> list[Received]:
        """The spans of the run that succeeded, its root among them, in the order of their starts."""
        spans = self.collector.spans()
        root = next(s for s in spans if s.attributes.get("kblock.state") == "succeeded")
        return _of(spans, root)

    @property
    def post(self) -> Request:
        """The one request with its effect."""
        [found] = [request for request in self.shop.calls if self.order.encode() in request.body]
        return found


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Asked, approved, executed, verified, with every trace exported."""
    with OtlpReceiver() as collector, Shop() as shop, LocalSite.make() as site:
        _configure(site, shop, collector)
        heard = _Heard()
        logging.getLogger().addHandler(heard)
        mine = order()
        shop.shop.orders[mine] = {"customer": CUSTOMER}
        shop.shop.answers[mine] = lambda row: said(201, {"ok": True, "refund_id": row["refund_id"], "status": OUTPUT})
        try:
            site.start()
            done = _story(site, mine)
            until(lambda: any(span.name == "kblock.seal" for span in collector.spans()))
            yield World(site, shop, collector, done, heard, mine)
        finally:
            logging.getLogger().removeHandler(heard)


class _Heard(logging.Handler):
    """Everything that is logged, with what is passed beside the message."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += f"{record.getMessage()} {record.__dict__}\n"


def _configure(site: LocalSite, shop: Shop, collector: OtlpReceiver) -> None:
    for name, value in (("write", WRITE), ("read", READ)):
        site.secret(name, value)
    sources = {name: f"file:{site.folder / name}" for name in ("write", "read")}
    file = site.config.parent / "upstreams" / "shop.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(shops.upstream(shop.url, sources)))
    memo = {"tool": {"arguments_schema": {"properties": {"memo": {"type": "string"}}}}, "reveal": ["/output/refund_id"]}
    contract = merged(shops.contract("production", {}), memo)
    telemetry = {"otlp": collector.endpoint, "sample_ratio": 1.0, "trust_parent_sampling": []}
    site.configure(
        "http://127.0.0.1:9/mcp",
        contracts={"refund": contract},
        daemon={"clocks": LONG_LEASE, "telemetry": telemetry},
    )
    site.pin("shop")


def _story(site: LocalSite, mine: str) -> Answer:
    arguments = {"order_id": mine, "amount": AMOUNT, "currency": "EUR", "memo": MEMO}
    call = Call.of("payment.refund.create", "production", target=mine, arguments=arguments, key=mine)
    pending = ask(site, call)
    with site.client("lead") as lead:
        shown = lead.approval(pending.approval_id)
        lead.decide(
            pending.approval_id,
            action_sha256=shown.action_sha256,
            presented_sha256=shown.presented_sha256,
            verdict="approve",
            reason=REASON,
        )
    with site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    return done


def test_c17_no_record_holds_content(world: World) -> None:
    """C17, R503, R530: every leaf of the ledger: no argument, output, snapshot, reason, message or secret; and the
    signed statements hold none either."""
    with world.site.client("operator") as operator:
        leaves = b"\n".join(leaf for _, leaf in operator.read_ledger(limit=500).leaves)
    assert world.done.execution_id.encode() in leaves
    for text in CONTENT:
        assert text.encode() not in leaves, text
        for dsse in (world.done.result_dsse, world.done.receipt_dsse):
            assert text not in json.dumps(statement(dsse)), text


def test_agt_03_a_long_call_is_decided_and_asked_about_beside_the_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each canonical form of a megabyte of arguments holds whoever writes it for a fifth of a second."""
    writers: set[str] = set()

    def noted(value: Any, option: int = 0) -> bytes:
        text = orjson.dumps(value, option=option)
        if len(text) > INLINE_BYTES:
            writers.add(threading.current_thread().name.rstrip("_01"))
        return text

    library = SimpleNamespace(**{**vars(orjson), "dumps": noted})
    for module in ("canonical", "text"):
        monkeypatch.setattr(f"kblockd.domain.{module}.orjson", library)
    mine = order()
    arguments = {"order_id": mine, "amount": AMOUNT, "currency": "EUR", "memo": "x" * (4 * INLINE_BYTES)}
    with world.site.client() as agent:
        agent.execute(Call.of("payment.refund.create", "production", target=mine, arguments=arguments, key=mine))
    assert writers - {threading.current_thread().name} == {"foreign-input"}


def test_the_content_is_there_for_those_who_may_read_it(world: World) -> None:
    """R048, R306: the approver sees memo and amount; the caller sees what the contract reveals, and nothing else."""
    with world.site.client("lead") as lead:
        shown = lead.approval(world.done.approval_id)
    assert MEMO in shown.arguments_json.decode()
    assert AMOUNT in shown.summary
    assert list(world.done.output["output"]) == ["refund_id"]


def test_every_record_of_the_execution_is_read_back(world: World) -> None:
    """R479, R492: in order, with stages and timings; the watch gives the same story."""
    found = records(world.site, world.done.execution_id)
    assert [(r["stage"], r["type"]) for r in found] == [
        (3, "execution.proposed"),
        (3, "approval.requested"),
        (4, "approval.decided"),
        (9, "execution.claimed"),
        (10, "execution.sent"),
        (12, "attempt.outcome"),
        (14, "finding.verified"),
        (16, "result.sealed"),
    ]
    assert [r["at"] for r in found] == sorted(r["at"] for r in found)
    timed = [stage for r in found for stage, _ in r["body"].get("stages", [])]
    assert [stage for stage in (5, 6, 7, 8, 9, 10, 11, 12, 14) if stage not in timed] == []
    with world.site.client() as agent:
        events = list(agent.watch(world.done.execution_id))
        assert [e.record_type for e in events] == [r["type"] for r in found]
        middle = events[3].ledger_index
        rest = list(agent.watch(world.done.execution_id, after_index=middle))
    assert [e.ledger_index for e in rest] == [e.ledger_index for e in events[4:]]


def test_another_agent_sees_nothing_of_it(world: World) -> None:
    """Rows are filtered by code; the auditor reads all of it."""
    with world.site.client("other") as other:
        assert other.list().items == ()
    with world.site.client("auditor") as auditor:
        assert world.done.execution_id in [item.execution_id for item in auditor.list().items]


def _of(spans: list[Received], root: Received) -> list[Received]:
    return sorted((s for s in spans if s.trace_id == root.trace_id), key=lambda s: s.start_ns)


def test_r508_the_spans_of_the_run_are_a_tree(world: World) -> None:
    """R508 to R519, R532: one root a call; each stage once, in order, below the root; upstream calls below theirs,
    in a poll at 13 and 14 (R515)."""
    tree = world.tree
    [run] = [span for span in tree if span.name == "kblock.execution"]
    stages = [s for s in tree if s.parent_id == run.span_id]
    assert [s.name.split(".", 1)[1] for s in stages] == [
        *("authenticate", "admit", "replay"),
        *("preflight", "lease", "read", "preconditions", "consume"),
        *("mark_sent", "dispatch", "classify", "reconcile", "verify", "recover", "seal"),
    ]
    calls = [s for s in tree if s.name == "kblock.upstream_call"]
    polls = [s for s in tree if s.name == "kblock.poll"]
    by_id = {s.span_id: s.name for s in stages}
    assert {by_id[poll.parent_id] for poll in polls} == {"kblock.verify"}
    by_id |= {poll.span_id: by_id[poll.parent_id] for poll in polls}
    assert all((c.parent_id in {p.span_id for p in polls}) == (by_id[c.parent_id] == "kblock.verify") for c in calls)
    assert list(dict.fromkeys((by_id[c.parent_id], c.attributes["kblock.call"]) for c in calls)) == [
        ("kblock.preflight", "describe"),
        ("kblock.read", "read"),
        ("kblock.dispatch", "invoke"),
        ("kblock.verify", "read"),
    ]
    assert len(tree) == 1 + len(stages) + len(polls) + len(calls)
    every = world.collector.spans()
    assert len({s.span_id for s in every}) == len(every)  # nothing is exported twice
    assert all(s.start_ns <= s.end_ns for s in tree)
    assert run.attributes["kblock.state"] == "succeeded"
    assert run.attributes["kblock.result_class"] == "completed_verified"
    assert run.attributes["kblock.agent"] == "local:agent"


def test_r514_the_upstream_is_told_the_trace(world: World) -> None:
    """R514, OTL-05: traceparent names the trace and the span of the call; baggage goes nowhere."""
    invoke = next(s for s in world.tree if s.attributes.get("kblock.call") == "invoke")
    version, trace_id, parent, _ = world.post.headers["traceparent"].split("-")
    assert (version, trace_id, parent) == ("00", invoke.trace_id, invoke.span_id)
    assert all("baggage" not in request.headers for request in world.shop.requests)


def test_r527_secrets_and_content_stay_out_of_spans_logs_and_process_lists(world: World) -> None:
    """R530, R631: no content, no key of the effect, no execution id in any byte that is exported or logged."""
    exported = world.collector.raw()
    for text in [*CONTENT, world.done.execution_id]:
        assert text.encode() not in exported, text
    for text in CONTENT:
        assert text not in world.heard.text, text
    lists = b""
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                lists += (folder / name).read_bytes()
            except OSError:
                continue
    assert b"write-9xkv" not in lists
    assert b"read-3mtd" not in lists


def test_the_effect_key_is_the_only_thing_of_ours_that_travels(world: World) -> None:
    """C9, R207: arguments as they were agreed, the effect key in its header, no id of ours."""
    assert json.loads(world.post.body)["memo"] == MEMO
    claimed = body(world.site, world.done.execution_id, "execution.claimed")
    assert world.post.headers[shops.EFFECT_KEY] == claimed["effect_key"]
    assert world.done.execution_id not in str(world.post)


def test_a_caller_that_does_not_wait_leaves_a_whole_trace_too(world: World) -> None:
    """R508, R532: the trace ends with the run, not with the RPC; one root, decided on its outcome."""
    mine = order()
    arguments = {"order_id": mine, "amount": AMOUNT, "currency": "EUR", "memo": MEMO}
    call = Call.of("payment.refund.create", "production", target=mine, arguments=arguments, key=mine, wait_seconds=0.0)
    approve(world.site, ask(world.site, call).approval_id)
    world.shop.shop.faults["/refunds"] = lambda: said(200, {"refunds": []})  # the run outlives the call
    try:
        with world.site.client() as agent:
            assert agent.execute(call).state == "executing"
            until(lambda: agent.get(caller_key=mine).answer.state == "held")
    finally:
        world.shop.shop.faults.clear()
    until(lambda: any(s.attributes.get("kblock.state") == "held" for s in world.collector.spans()))
    spans = world.collector.spans()
    root = next(s for s in spans if s.attributes.get("kblock.state") == "held")
    assert {"kblock.consume", "kblock.dispatch", "kblock.verify"} <= {s.name for s in _of(spans, root)}
