"""The whole daemon with a signed bundle: a bad one changes nothing and is said, a good one is recorded with its signer.

Nobody asks for a reload: the daemon looks by itself, here ten times a second.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kblockd import decision_point
from kblockd.client.answers import Completed
from kblockd.client.errors import Unavailable
from kblockd.domain.ledger import rows
from tests.contract.policy.bundles import SIGNATURES, KeyPair, packed, put, signed
from tests.contract.policy.support import files, opa_binary, package
from tests.harness import refund
from tests.integration.pipeline.local import (
    LONG_LEASE,
    PATIENT_BREAKER,
    LocalSite,
    body,
    effects,
    order,
    run_approved,
    since,
    until,
)
from tests.upstreams.payments import PaymentsServer

RESULTS = {
    "authz": '{"allow": true, "tenants": ["*"], "agents": ["*"], "reasons": []}',
    "decision": '{"effect": "require_approval", "approvals": {"count": 1, "roles": ["finance"]}, "observe_until": "",'
    ' "reasons": []}',
    "preconditions": '{"ok": true, "stands": true, "reasons": []}',
    "verification": '{"verdict": "expected", "reasons": []}',
}
RELEASE, NEXT, STRANGER = KeyPair("release-2026"), KeyPair("release-2027"), KeyPair("stranger")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_point, "POLL_SECONDS", 0.1)


def version(revision: str, **more: str) -> dict[str, bytes]:
    """Policies that let an approved refund through, under a name of their own; ``more`` adds files."""
    packages = {name: package(name, f"result := {result}") for name, result in RESULTS.items()}
    content = {name: text.encode() for name, text in files(**packages, **more).items()}
    return {".manifest": f'{{"revision":"{revision}","roots":["kblock"]}}'.encode(), **content}


V1, V2 = version("v1"), version("v2", more__rego="package kblock.more\n\nx := 1\n")


def kinds(site: LocalSite) -> list[str]:
    """What the ledger says of policies, in order."""
    return [record["type"] for record in since(site, 0) if record["type"].startswith("policy.")]


def activated(site: LocalSite) -> dict[str, Any]:
    """The newest activation."""
    found: dict[str, Any] = [r["body"] for r in since(site, 0) if r["type"] == "policy.activated"][-1]
    return found


@contextmanager
def verified(payments: PaymentsServer, archive: bytes, policy: dict[str, Any] | None = None) -> Iterator[LocalSite]:
    """A site, not started, whose bundle is that archive and whose keys are the two releases'."""
    with LocalSite.make() as site:
        keys = []
        for pair in (RELEASE, NEXT):
            _, public = pair.write(site.folder)
            keys.append({"id": pair.id, "algorithm": pair.algorithm, "file": str(public)})
        put(site.folder / "bundle.tar.gz", archive)
        section = {
            "bundle": str(site.folder / "bundle.tar.gz"),
            "verification": {"allow_unsigned": False, "scope": "", "keys": keys},
            **(policy or {}),
        }
        site.configure(payments.url, daemon={"clocks": LONG_LEASE, "policy": section}, upstream=PATIENT_BREAKER)
        site.pin()
        yield site


@pytest.mark.parametrize("engine", ["embedded", "opa"])
def test_pol_05_daemon_keeps_the_good_bundle_and_names_the_signer_of_the_next(
    engine: str, payments: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """R108, R487: refused in log, status and ledger, the old one decides; then the new one's signer is on record."""
    caplog.set_level(logging.INFO)
    with verified(payments, packed(signed(V1, RELEASE))) as site:
        if engine == "opa":
            opa = {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")}
            site.rewrite(lambda document: document["policy"].update(engine="opa", opa=opa))
        site.start()
        assert site.daemon is not None
        first = activated(site)
        assert (first["engine"], first["signer"], first["bundle_revision"]) == (engine, RELEASE.id, "v1")
        for count, (said, archive) in enumerate(bad().items(), 1):
            put(site.folder / "bundle.tar.gz", archive)
            until(lambda: kinds(site)[1:] == ["policy.refused"] * count)  # noqa: B023  # awaited here
            status = site.daemon.parts.engine.status()
            assert (status.revision, status.ready) == (first["revision"], True)
            assert said in status.last_error
            assert any(said in r.getMessage() and first["revision"] in r.getMessage() for r in caplog.records)
        mine = order()
        done = run_approved(site, refund(mine, key=mine))
        assert isinstance(done, Completed)
        assert body(site, done.execution_id, "execution.claimed")["policy_revision"] == first["revision"]

        content = signed(V2, NEXT)
        put(site.folder / "bundle.tar.gz", packed(content))
        until(lambda: activated(site)["signer"] == NEXT.id)
        until(lambda: site.daemon.parts.engine.status().last_error == "")  # type: ignore[union-attr]  # it runs
        second = activated(site)
        assert second["bundle_revision"] == "v2"
        assert second["revision"] == site.daemon.parts.engine.status().revision != first["revision"]
        assert any(f"signed by {NEXT.id}" in r.getMessage() for r in caplog.records)
        kept = site.run(site.daemon.parts.store.payload(rows.payload("policy", second["bundle_sha256"])))
        assert [json.loads(kept)["signature"]] == json.loads(content[SIGNATURES])["signatures"]
        site.stop()
        site.command("policy", "status", "--config", str(site.config))


def bad() -> dict[str, bytes]:
    """Archives by what is said of them."""
    good = packed(signed(V2, NEXT))
    return {
        "cut off": good[: len(good) // 2],
        "nobody signed this bundle": packed(V2),
        "'stranger' is not configured": packed(signed(V2, STRANGER)),
        "key release-2026 signed another content": packed({**signed(V1, RELEASE), "authz.rego": V1["recovery.rego"]}),
    }


def test_pol_04_bad_bundle_at_the_start_decides_nothing_until_a_good_one_is_there(payments: PaymentsServer) -> None:
    """There is no good one to keep: NOT_SERVING, every call refused, and no restart needed."""
    with verified(payments, packed(V1)) as site:
        site.start(wait=False)
        assert not site._healthy()
        mine = order()
        with site.client() as agent, pytest.raises(Unavailable) as caught:
            agent.execute(refund(mine, key=mine))
        assert (caught.value.reason, caught.value.retryable) == ("POLICY_UNDEFINED", True)
        assert effects(payments, mine) == []
        put(site.folder / "bundle.tar.gz", packed(signed(V1, RELEASE)))
        site.wait_healthy()
        assert kinds(site) == ["policy.refused", "policy.activated"]
        assert activated(site)["signer"] == RELEASE.id


def test_unsigned_archive_comes_into_force_by_its_switch_alone(
    payments: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Said loudly at the start, and the ledger says that nobody signed."""
    with verified(payments, packed(V1)) as site:
        site.rewrite(lambda document: document["policy"]["verification"].update(allow_unsigned=True))
        site.start()
        found = activated(site)
        assert (found["signer"], found["signature_scope"], found["bundle_revision"]) == ("", "", "v1")
        assert any("allow_unsigned" in r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
