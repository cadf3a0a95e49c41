"""What is known at the start refuses the start: a daemon that serves can seal what it does, and nobody else decides."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator

import pytest

from kblockd.client import Completed
from kblockd.config import ConfigurationError
from kblockd.evidence.ceremony import add_key, init_keys
from kblockd.evidence.errors import KeysRefused
from kblockd.evidence.jwks import Role
from kblockd.evidence.keyring import KeyRing
from kblockd.execution.activate import Activation
from kblockd.upstream.catalog import CatalogError
from tests.harness import refund
from tests.integration.pipeline.local import LONG_LEASE, PATIENT_BREAKER, LocalSite, effects, order, run_approved, size
from tests.upstreams.payments import PaymentsServer


@pytest.fixture
def own(pay: PaymentsServer) -> Iterator[LocalSite]:
    """A daemon of the test's own, configured and not started."""
    with LocalSite.make() as made:
        made.configure(pay.url, daemon={"clocks": LONG_LEASE}, upstream=PATIENT_BREAKER)
        made.pin()
        yield made


def completes(site: LocalSite, pay: PaymentsServer) -> Completed:
    """A refund goes through every stage, its result is sealed, and it was done once."""
    mine = order()
    done = run_approved(site, refund(mine, key=mine))
    assert isinstance(done, Completed)
    assert len(effects(pay, mine)) == 1
    return done


@contextlib.contextmanager
def other_keys(site: LocalSite) -> Iterator[KeyRing]:
    """In the place of the right ones, which are back afterwards."""
    keys, away = site.data / "keys", site.folder / "away"
    keys.rename(away)
    init_keys(keys, site.folder / "other-root.pem")
    try:
        yield KeyRing.load(keys)
    finally:
        shutil.rmtree(keys)
        away.rename(keys)


def test_loc_04_a_start_with_other_keys_is_refused_and_the_right_ones_go_on(
    own: LocalSite, pay: PaymentsServer
) -> None:
    """Seen: it served, the next effect was done and could not be sealed: "the run stopped: Unavailable"."""
    own.start()
    completes(own, pay)
    own.stop()
    ours = KeyRing.load(own.data / "keys")
    with other_keys(own) as theirs:
        with pytest.raises(KeysRefused) as refused:
            own.start()
        for role in Role:
            both = f"{role} key on disk {theirs.signer(role).key_id}, active in the ledger {ours.signer(role).key_id}"
            assert both in str(refused.value)
        assert not list((own.folder / "run").iterdir())
    own.start()
    completes(own, pay)


def test_rcp_08_after_a_rotation_the_next_start_seals_with_the_new_key(own: LocalSite, pay: PaymentsServer) -> None:
    """And the old key, when it comes back, refuses the start (LOC-04)."""
    own.start()
    before = completes(own, pay)
    records = size(own)
    own.stop()
    old = KeyRing.load(own.data / "keys")
    shutil.copytree(own.data / "keys", own.folder / "before")
    add_key(own.data / "keys", own.root_key, Role.RESULT, from_index=records)
    own.start()
    after = completes(own, pay)
    assert before.result_class == after.result_class == "completed_verified"
    fresh = own.daemon.parts.keys.result.key_id if own.daemon else ""
    own.stop()
    (own.data / "keys").rename(own.folder / "after")
    (own.folder / "before").rename(own.data / "keys")
    with pytest.raises(KeysRefused) as refused:
        own.start()
    assert f"result key on disk {old.result.key_id}, active in the ledger {fresh}" in str(refused.value)


def test_loc_04_stage_5_finds_a_key_that_changed_while_the_daemon_ran(
    own: LocalSite, pay: PaymentsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is executed or consumed, and the log of the operator has both ids."""
    own.start()
    assert own.daemon is not None
    parts = own.daemon.parts
    init_keys(own.folder / "theirs", own.folder / "theirs.pem")
    theirs = KeyRing.load(own.folder / "theirs")
    own.run(Activation(parts.store, parts.clock).keys(theirs))
    mine = order()
    with pytest.raises(Exception, match="no result could be sealed") as refused:
        run_approved(own, refund(mine, key=mine))
    for kid in (theirs.result.key_id, parts.keys.result.key_id):
        assert kid in str(refused.value)
    assert effects(pay, mine) == []


@pytest.mark.parametrize(("name", "mode"), [("kblockd.yaml", 0o666), ("policy", 0o777), ("actions", 0o777)])
def test_loc_02_a_start_is_refused_with_the_path_that_others_may_write(own: LocalSite, name: str, mode: int) -> None:
    """Seen: it started, nobody overwrote the policy, and a refund ran unapproved after 3 s."""
    path = own.config.parent / name
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"{path} others may write to it .*chmod go-w {path}$"):
        own.start()
    assert not list((own.folder / "run").iterdir())


def test_a_variable_that_the_environment_lacks_refuses_the_start(
    own: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R077: the environment of a process does not change any more."""
    monkeypatch.delenv("KBLOCKD_TEST_PAY", raising=False)
    own.rewrite(lambda it: it.update(credentials={"write": "env:KBLOCKD_TEST_PAY"}), "upstreams/payments.yaml")
    own.rewrite(lambda it: it["execution"].pop("credential_source", None), "actions/payment.refund.create.yaml")
    with pytest.raises(CatalogError) as refused:
        own.start()
    said = "upstream payments: credentials.write: the environment variable KBLOCKD_TEST_PAY is not set; set it in the"
    assert said in str(refused.value)


def test_a_credential_file_that_is_missing_at_the_start_is_said(
    own: LocalSite, caplog: pytest.LogCaptureFixture
) -> None:
    """It may come with the next rotation; until then stage 5 refuses."""
    own.rewrite(lambda it: it.update(credentials={"write": "file:absent"}), "upstreams/payments.yaml")
    own.rewrite(lambda it: it["execution"].pop("credential_source", None), "actions/payment.refund.create.yaml")
    with caplog.at_level(logging.WARNING):
        own.start()
    (said,) = [record.getMessage() for record in caplog.records if "credentials.write" in record.getMessage()]
    assert "upstreams/absent: No such file or directory; nothing is sent to this upstream until it is fixed" in said
