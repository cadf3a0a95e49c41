"""Time that is over: no attempt begins after the absolute deadline, and a time-out without effect comes to an end."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kblockd.client.answers import Answer, Held, UpstreamError
from kblockd.domain.clock import parse_rfc3339
from kblockd.domain.ledger import rows
from kblockd.domain.outcome import CallStatus, Finding
from kblockd.evidence import verify_offline
from kblockd.policy import entrypoints
from kblockd.policy.engine import Decision
from tests.harness import approve
from tests.integration.pipeline import shop as shops
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    ask,
    body,
    effects,
    order,
    records,
    refund_in,
    run_approved,
    statement,
    types,
    variants,
)
from tests.integration.pipeline.shop import Shop
from tests.upstreams.misbehaving import Mode
from tests.upstreams.payments import PaymentsServer

HURRIED = {"execution": {"maximum_attempts": 2, "request_timeout_seconds": 1, "absolute_deadline_seconds": 1}}
SHOPS: Final[dict[str, dict[str, Any]]] = {
    "shop": {},
    "shop-hurried": HURRIED,
    "shop-blind": {"tool": {"effect_key": {"in": "none", "name": ""}}, "idempotency_scope": "none", "lookup": []},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Shop]:
    """One for the module."""
    with Shop() as made:
        yield made


@pytest.fixture
def shop(server: Shop) -> Iterator[Shop]:
    """Well again afterwards."""
    yield server
    server.well()


@pytest.fixture(scope="module")
def gaps(payments: PaymentsServer, server: Shop) -> Iterator[LocalSite]:
    """A daemon over both upstreams."""
    with LocalSite.make() as made:
        secrets = {"write": "Bearer write", "read": "Bearer read"}
        for name, value in secrets.items():
            made.secret(name, value)
        file = made.config.parent / "upstreams" / "shop.yaml"
        file.parent.mkdir(parents=True)
        sources = {name: f"file:{made.folder / name}" for name in secrets}
        file.write_text(json.dumps(shops.upstream(server.url, sources)))
        made.configure(
            payments.url,
            contracts={
                **variants({"production": {}, "hurried": HURRIED}),
                **{f"refund.{name}": shops.contract(name, change) for name, change in SHOPS.items()},
            },
            daemon={"clocks": {**LONG_LEASE, "reconcile_seconds": 8}},
            upstream=PATIENT_BREAKER,
        )
        for upstream in ("payments", "shop"):
            made.pin(upstream)
        made.start()
        yield made


def attempts(site: LocalSite, execution_id: str) -> list[int]:
    """The attempts that were marked as sent."""
    return [r["attempt"] for r in records(site, execution_id) if r["type"] == "execution.sent"]


def test_r572_a_refused_connection_is_not_tried_again_after_the_absolute_deadline(gaps: LocalSite, shop: Shop) -> None:
    """R572, R747: two attempts are allowed and the first never left; the upstream stays away until the time is over,
    and when it is back nothing is sent."""
    mine = order()
    call = refund_in("shop-hurried", mine, key=mine)
    approve(gaps, ask(gaps, call).approval_id)
    shop.deaf_after = mine
    try:
        with gaps.client() as agent:
            failed = agent.execute(call)
    finally:
        shop.listen_again()
    assert isinstance(failed, UpstreamError)
    assert (failed.state, failed.result_class) == ("failed", "failed_before_side_effect")
    assert (failed.executed, failed.consumed) == (False, True)
    assert body(gaps, failed.execution_id, "attempt.outcome")["sent"] == "not_sent"
    assert attempts(gaps, failed.execution_id) == [1]
    assert statement(failed.result_dsse)["predicate"]["attempts"] == "1"
    sealed = records(gaps, failed.execution_id)[-1]
    claimed = body(gaps, failed.execution_id, "execution.claimed")
    assert parse_rfc3339(sealed["at"]) >= parse_rfc3339(claimed["deadline_at"])
    with gaps.client() as agent:
        assert agent.execute(call).result_dsse == failed.result_dsse
    assert [json.loads(request.body) for request in shop.calls if mine.encode() in request.body] == []


def test_r572_an_absence_proved_after_the_absolute_deadline_ends_it(gaps: LocalSite, pay: PaymentsServer) -> None:
    """R572, R747: the upstream is well and would be called again, but the proof came too late; nobody is even asked."""
    mine = order()
    pay.control(refuse=True)
    failed = run_approved(gaps, refund_in("hurried", mine, key=mine))
    assert isinstance(failed, UpstreamError)
    assert (failed.state, failed.result_class) == ("failed", "failed_before_side_effect")
    assert body(gaps, failed.execution_id, "finding.reconciled")["finding"] == "absent"
    assert "recovery.planned" not in types(gaps, failed.execution_id)
    assert attempts(gaps, failed.execution_id) == [1]
    assert effects(pay, mine) == []


def test_r747_a_retry_whose_planning_took_too_long_is_not_begun(
    gaps: LocalSite, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R572, R747: planned in time, the deadline passed before its marker: DEADLINE_PASSED, and one attempt on record,
    although the upstream listens again."""
    mine = order()
    call = refund_in("shop-hurried", mine, key=mine)
    pending = ask(gaps, call)
    approve(gaps, pending.approval_id)
    parts = gaps.daemon.parts
    evaluate = parts.engine.evaluate

    async def late(entrypoint: str, document: Any) -> Decision:
        found: Decision = await evaluate(entrypoint, document)
        if entrypoint == entrypoints.RECOVERY:
            shop.listen_again()
            _, row = await parts.store.get(rows.execution(pending.execution_id))
            over = parse_rfc3339(row.deadline_at) - parts.clock.now()
            await asyncio.sleep(max(0.0, over.total_seconds()) + 0.05)
        return found

    shop.deaf_after = mine
    with monkeypatch.context() as patch, gaps.client() as agent:
        patch.setattr(parts.engine, "evaluate", late)
        failed = agent.execute(call)
    assert isinstance(failed, UpstreamError)
    assert (failed.code, failed.result_class) == ("DEADLINE_PASSED", "failed_before_side_effect")
    assert (failed.executed, failed.consumed) == (False, True)
    assert body(gaps, failed.execution_id, "recovery.planned")["recovery"] == "retry"
    assert attempts(gaps, failed.execution_id) == [1]
    assert statement(failed.result_dsse)["predicate"]["attempts"] == "1"
    assert shop.shop.of(mine) == []


def _verified(site: LocalSite, failed: Answer, place: Path) -> dict[str, Any]:
    """What the file that verifies by itself says, in a process that sees nothing of kblockd."""
    script = shutil.copy(verify_offline.__file__, place / "verify_offline.py")
    parts = {"result": failed.result_dsse, "receipt": failed.receipt_dsse, "proof": failed.receipt_proof.encode()}
    command = [sys.executable, "-I", str(script), "--json", "--action", failed.action_sha256, "--state", "failed"]
    for name, data in parts.items():
        (place / name).write_bytes(data)
        command += [f"--{name}", str(place / name)]
    keys = site.data / "keys"
    command += ["--root", str(keys / "root.pub.pem"), "--keyset", str(keys / "keyset.dsse.json")]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_r182_r661_a_time_out_without_effect_ends_as_upstream_timeout(
    gaps: LocalSite, shop: Shop, tmp_path: Path
) -> None:
    """R182, R661, OUT-02, C8: one attempt, absence proved: upstream_error with UPSTREAM_TIMEOUT and a receipt that
    holds offline; recorded as the attempt's outcome first, sealed once; the repeat gets the same."""
    mine = order()
    call = refund_in("shop", mine, key=mine)
    shop.mode = Mode.STALL_BEFORE_EFFECT
    failed = run_approved(gaps, call)
    shop.mode = Mode.OK
    assert isinstance(failed, UpstreamError)
    assert failed.status is CallStatus.UPSTREAM_ERROR
    assert (failed.state, failed.code, failed.result_class) == (
        "failed",
        "UPSTREAM_TIMEOUT",
        "failed_before_side_effect",
    )
    assert (failed.executed, failed.consumed, failed.outcome_unknown) == (False, True, False)
    assert failed.detail.startswith("UPSTREAM_TIMEOUT: ")
    outcome = body(gaps, failed.execution_id, "attempt.outcome")
    assert (outcome["code"], outcome["class"], outcome["sent"]) == ("UPSTREAM_TIMEOUT", "unknown_outcome", "lost")
    assert body(gaps, failed.execution_id, "finding.reconciled")["finding"] == "absent"
    assert body(gaps, failed.execution_id, "result.sealed")["wire_code"] == "UPSTREAM_TIMEOUT"
    assert attempts(gaps, failed.execution_id) == [1]
    predicate = statement(failed.result_dsse)["predicate"]
    assert (predicate["state"], predicate["code"]) == ("failed", "UPSTREAM_TIMEOUT")
    assert failed.receipt_dsse
    assert statement(failed.receipt_dsse)["predicate"]["executionId"] == failed.execution_id
    assert _verified(gaps, failed, tmp_path)["verdict"] == "verified"
    with gaps.client() as agent:
        again = agent.execute(call)
    assert (again.code, again.result_dsse, again.receipt_dsse) == (failed.code, failed.result_dsse, failed.receipt_dsse)
    assert shop.shop.of(mine) == []


def test_r182_a_time_out_that_nothing_can_look_up_is_held(gaps: LocalSite, shop: Shop) -> None:
    """R182, R195, OUT-02: no lookup, so neither success nor failure is claimed; nothing is sent again, and an
    operator's finding ends it with a receipt."""
    mine = order()
    call = refund_in("shop-blind", mine, key=mine)
    shop.mode = Mode.STALL_BEFORE_EFFECT
    held = run_approved(gaps, call)
    shop.mode = Mode.OK
    assert isinstance(held, Held)
    assert (held.code, held.result_class, held.outcome_unknown) == ("UPSTREAM_TIMEOUT", "unknown_outcome", True)
    assert (held.result_dsse, held.receipt_dsse) == (b"", b"")
    assert attempts(gaps, held.execution_id) == [1]
    with gaps.client("operator") as operator:
        sealed = operator.resolve(held.execution_id, Finding.ABSENT, "it is not in the provider's books")
    assert isinstance(sealed, UpstreamError)
    assert (sealed.state, sealed.result_class) == ("failed", "failed_before_side_effect")
    assert sealed.receipt_dsse
    assert sum(mine.encode() in request.body for request in shop.calls) == 1
