"""A real OPA that somebody else runs: over TLS, with what it may serve, and through everything that happens to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.domain.errors import Reason
from kblockd.paths import Writers
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.opa import revisions
from kblockd.policy.opa.access import AccessRefused, RemoteAccess
from kblockd.policy.opa.remote import RemoteEngine
from kblockd.policy.opa.revisions import Passed, RevisionsUnreadable
from tests.contract.policy.remote import Server, Watched, put
from tests.contract.policy.support import (
    ALLOW,
    ALLOW_REFUND,
    DENY,
    HANG_SECONDS,
    CountingIds,
    RealClock,
    deciding,
    document,
    files,
    until,
)
from tests.integration.opa.stub import ANSWER, REVISION, http, stub
from tests.integration.opa.tls import Authority

OLD = Bundle.of(deciding(ALLOW_REFUND))
NEW = Bundle.of(deciding(ALLOW_REFUND, f'result := {DENY} if input.action.type == "other"'))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that looks for a new bundle every second; not started, and without a bundle."""
    it = Server(tmp_path, polled=True)
    yield it
    it.close()


@pytest.fixture
async def watched(server: Server, tmp_path: Path):
    it = Watched(RemoteAccess(server.url), tmp_path / "revisions.jsonl")
    yield it
    await it.engine.close()


async def effect(engine: RemoteEngine, kind: str = "refund") -> str:
    return str((await engine.evaluate(DECISION, document(kind))).result["effect"])


async def reason(engine: RemoteEngine, kind: str = "refund") -> Reason:
    with pytest.raises(PolicyFailure) as raised:
        await engine.evaluate(DECISION, document(kind))
    return raised.value.reason


async def looks_until(watched: Watched, says: str) -> None:
    """Looks until the status says why not."""
    async with asyncio.timeout(HANG_SECONDS):
        while says not in watched.engine.status().last_error:
            await watched.watch.reload()
            await asyncio.sleep(0.02)


async def test_pol_04_nothing_is_ready_before_the_bundle_is_active(server: Server, watched: Watched) -> None:
    """OPA is not there, then there without a bundle, then with it: denied, denied, ready; no manual step."""
    watched.passes(OLD)
    assert not await watched.watch.reload()
    assert not watched.engine.status().ready
    assert await reason(watched.engine) is Reason.POLICY_UNDEFINED
    server.start()
    await looks_until(watched, "names no revision")
    assert await reason(watched.engine) is Reason.POLICY_UNDEFINED
    put(server.file, OLD)
    await watched.settles()
    assert watched.engine.status().ready
    assert watched.engine.status().revision == OLD.revision
    assert watched.activated == [OLD.revision]
    assert await effect(watched.engine) == "allow"


async def test_pol_05_revision_that_did_not_pass_decides_nothing(server: Server, watched: Watched) -> None:
    """The bundle in OPA is replaced by one that ``policy check`` has not seen: refused once, on record, and denied."""
    watched.passes(OLD)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    put(server.file, NEW)
    await looks_until(watched, "did not pass")
    await watched.watch.reload()
    assert [error.revision for error in watched.refused] == [NEW.revision]
    assert not watched.engine.status().ready
    assert await reason(watched.engine) is Reason.POLICY_DOWN
    watched.passes(NEW)
    await watched.settles()
    assert watched.activated == [OLD.revision, NEW.revision]
    assert await effect(watched.engine) == "allow"


async def test_pol_05_between_opa_and_the_record_nothing_is_allowed(server: Server, watched: Watched) -> None:
    """OPA has the new revision, the activation is not on record yet: an answer of the new one is no answer."""
    watched.passes(OLD, NEW)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    put(server.file, NEW)
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            try:
                assert (await watched.engine.evaluate(DECISION, document())).revision == OLD.revision
            except PolicyFailure as caught:
                failure = caught
                break
    assert failure.reason is Reason.POLICY_DOWN
    assert f"serves revision {NEW.revision}, {OLD.revision} is in force" in failure.message
    watched.failures.append(OSError("the store is gone"))
    with pytest.raises(OSError, match="the store is gone"):
        await watched.watch.reload()
    assert watched.engine.status().revision == OLD.revision
    assert await reason(watched.engine) is Reason.POLICY_DOWN
    assert await watched.watch.reload()
    assert (await watched.engine.evaluate(DECISION, document())).revision == NEW.revision


async def test_revision_that_is_taken_out_of_the_file_is_retired(server: Server, watched: Watched) -> None:
    watched.passes(OLD, NEW)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    lines = watched.file.read_text().splitlines(keepends=True)
    watched.file.write_text("".join(line for line in lines if OLD.revision not in line))
    assert not await watched.watch.reload()
    assert "no longer noted" in watched.engine.status().last_error
    assert await reason(watched.engine) is Reason.POLICY_UNDEFINED
    watched.file.write_text("garbage\n")
    assert not await watched.watch.reload()
    assert "revisions.jsonl:1" in watched.engine.status().last_error
    watched.file.write_text("".join(lines))
    await watched.settles()
    assert await effect(watched.engine) == "allow"


async def test_bundle_without_an_entry_point_does_not_come_into_force(server: Server, watched: Watched) -> None:
    """Even when it was noted as passed: what OPA really answers is looked at."""
    texts = {name: text for name, text in files().items() if name != "recovery.rego"}
    partial = Bundle.of(texts)
    watched.passes(partial)
    put(server.file, partial)
    server.start()
    await looks_until(watched, "kblock/recovery/result is undefined")
    assert len(watched.refused) == 1
    assert await reason(watched.engine) is Reason.POLICY_UNDEFINED


async def test_uploads_beside_the_bundle_are_refused_by_opa(server: Server, watched: Watched) -> None:
    """The bundle's root is everything."""
    import aiohttp

    watched.passes(OLD)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    evil = f"package kblock.decision\nresult := {ALLOW}\n"
    async with aiohttp.ClientSession() as session:
        for path, body in [("policies/evil", evil), ("data/kblock/decision/result", ALLOW), ("data", "{}")]:
            async with session.put(f"{server.url}/v1/{path}", data=body) as response:
                assert response.status == 400
                assert "bundle" in await response.text()
    assert await effect(watched.engine, "other") == "deny"


async def test_pol_06_flips_under_load_never_allow_what_is_denied(server: Server, watched: Watched) -> None:
    """Two revisions that both deny one input and allow another; the watch follows OPA."""
    watched.passes(OLD, NEW)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    watching = asyncio.create_task(watched.watch.run())
    done = asyncio.Event()

    reasons: list[Reason] = []

    async def load(kind: str, expected: str) -> set[str]:
        seen = set()
        while not done.is_set():
            try:
                decision = await watched.engine.evaluate(DECISION, document(kind))
                assert decision.result["effect"] == expected
                seen.add(decision.revision)
            except PolicyFailure as failure:
                reasons.append(failure.reason)
            await asyncio.sleep(0.005)
        return seen

    tasks = [asyncio.create_task(load(*pair)) for pair in [("refund", "allow"), ("other", "deny")] * 2]
    for bundle in (NEW, OLD, NEW):
        put(server.file, bundle)
        await until(lambda wanted=bundle.revision: watched.engine.status().revision == wanted)
        await asyncio.sleep(0.1)
    done.set()
    for seen in await asyncio.gather(*tasks):
        assert seen == {OLD.revision, NEW.revision}
    assert set(reasons) <= {Reason.POLICY_DOWN}
    assert watched.activated == [OLD.revision, NEW.revision, OLD.revision, NEW.revision]
    watching.cancel()


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
async def test_pol_13_opa_that_is_killed_or_frozen_under_load(server: Server, tmp_path: Path, blow: int) -> None:
    """No wrong allowance while it is away, and its return needs nobody."""
    watched = Watched(RemoteAccess(server.url), tmp_path / "revisions.jsonl", evaluate_seconds=1.0)
    watched.passes(OLD)
    put(server.file, OLD)
    server.start()
    await watched.settles()
    reasons: list[Reason] = []
    done = asyncio.Event()

    async def load(kind: str, expected: str) -> None:
        while not done.is_set():
            try:
                assert await effect(watched.engine, kind) == expected
            except PolicyFailure as failure:
                reasons.append(failure.reason)
            await asyncio.sleep(0.002)

    tasks = [asyncio.create_task(load(*pair)) for pair in [("refund", "allow"), ("other", "deny")] * 4]
    await asyncio.sleep(0.2)
    os.kill(server.pid, blow)
    await until(lambda: len(reasons) > 8)
    assert not await watched.watch.reload()
    assert not watched.engine.status().ready
    if blow == signal.SIGKILL:
        server.stop()
        server.start()
    else:
        os.kill(server.pid, signal.SIGCONT)
    await watched.settles()
    assert await effect(watched.engine) == "allow"
    done.set()
    await asyncio.gather(*tasks)
    assert set(reasons) <= {Reason.POLICY_DOWN, Reason.POLICY_TIMEOUT}
    assert watched.activated == [OLD.revision]
    await watched.engine.close()


async def test_mutual_tls(tmp_path: Path) -> None:
    """Both sides show a certificate; who shows none, or trusts another authority, gets no answer."""
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "other")
    at, client, stranger = ours.issue("opa"), ours.issue("kblockd"), theirs.issue("stranger")
    server = Server(
        tmp_path,
        *("--authentication=tls", f"--tls-ca-cert-file={ours.file}"),
        *(f"--tls-cert-file={at.cert}", f"--tls-private-key-file={at.key}"),
        scheme="https",
    )
    put(server.file, OLD)
    server.start()
    good = RemoteAccess(server.url, ca_file=ours.file, client_cert_file=client.cert, client_key_file=client.key)
    bad = {
        "no certificate": RemoteAccess(server.url, ca_file=ours.file),
        "another's certificate": RemoteAccess(
            server.url, ca_file=ours.file, client_cert_file=stranger.cert, client_key_file=stranger.key
        ),
        "another authority": RemoteAccess(
            server.url, ca_file=theirs.file, client_cert_file=client.cert, client_key_file=client.key
        ),
        "the system's authorities": RemoteAccess(server.url),
        "plain": RemoteAccess(server.url.replace("https", "http")),
        "another name": RemoteAccess(server.url.replace("127.0.0.1", "localhost"), ca_file=ours.file),
    }
    try:
        async with contextlib.AsyncExitStack() as stack:
            watched = Watched(good, tmp_path / "revisions.jsonl")
            stack.push_async_callback(watched.engine.close)
            watched.passes(OLD)
            await watched.settles()
            assert await effect(watched.engine) == "allow"
            for what, access in bad.items():
                refused = Watched(access, tmp_path / "revisions.jsonl")
                stack.push_async_callback(refused.engine.close)
                assert not await refused.watch.reload(), what
                assert not refused.engine.status().ready, what
                assert await reason(refused.engine) is Reason.POLICY_UNDEFINED
    finally:
        server.stop()


AUTHORIZED = """package system.authz

import rego.v1

default allow := false

allow if input.identity == "hunter2"
"""


async def test_bearer_token_and_its_rotation(tmp_path: Path) -> None:
    """A token over TLS; the file is read again when it changes, without a restart."""
    authority = Authority(tmp_path)
    at = authority.issue("opa")
    server = Server(
        tmp_path,
        *("--authentication=token", "--authorization=basic"),
        *(f"--tls-cert-file={at.cert}", f"--tls-private-key-file={at.key}"),
        scheme="https",
    )
    bundle = Bundle.of({**deciding(ALLOW_REFUND), "authorized.rego": AUTHORIZED})
    put(server.file, bundle)
    token = tmp_path / "token"
    token.write_text("hunter3\n")
    watched = Watched(RemoteAccess(server.url, ca_file=authority.file, token_file=token), tmp_path / "revisions.jsonl")
    watched.passes(bundle)
    server.start()
    try:
        await looks_until(watched, "does not take kblockd's credential")
        fresh = tmp_path / "fresh"
        fresh.write_text("hunter2\n")
        fresh.replace(token)
        await watched.settles()
        assert await effect(watched.engine) == "allow"
        token.unlink()
        assert not await watched.watch.reload()
        assert "token: cannot be read" in watched.engine.status().last_error
        assert await effect(watched.engine) == "allow"
    finally:
        await watched.engine.close()
        server.stop()


async def test_a_token_that_was_read_half_written_is_read_again(tmp_path: Path) -> None:
    """Both halves were written within one tick of the file system's clock, and have one time."""
    token = tmp_path / "token"
    token.write_text("hunt")
    tick = token.stat().st_mtime_ns
    async with stub(http(ANSWER)) as server:
        engine = RemoteEngine(RemoteAccess(server.url, token), 20.0, RealClock(), CountingIds())
        await engine.connect()
        await engine.served(20.0)
        with token.open("a") as file:
            file.write("er2\n")
        os.utime(token, ns=(tick, tick))
        for _ in range(2):
            await engine.connect()
            await engine.served(20.0)
        await engine.close()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer hunt", "Bearer hunter2", "Bearer hunter2"]


async def test_a_token_that_is_rotated_fails_no_question_that_was_asked_before(tmp_path: Path) -> None:
    token, let = tmp_path / "token", asyncio.Event()
    token.write_text("hunter1")

    async def late(writer: asyncio.StreamWriter) -> None:
        await let.wait()
        await http(ANSWER)(writer)

    async with stub(late) as server:
        engine = RemoteEngine(RemoteAccess(server.url, token), 20.0, RealClock(), CountingIds())
        await engine.connect()
        engine.put_in_force(REVISION)
        asked = asyncio.ensure_future(engine.evaluate(DECISION, document()))
        await until(lambda: len(server.requests) == 1)
        old = engine._opa
        token.write_text("hunter22")
        await engine.connect()
        assert engine._opa is not old
        let.set()
        assert (await asked).result["effect"] == "allow"
        assert old is not None
        assert old._client._session is None  # and nothing of it is left
        await engine.evaluate(DECISION, document())
        await engine.close()
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer hunter1", "Bearer hunter22"]


@pytest.mark.parametrize("name", ["token_file", "client_key_file"])
def test_loc_02_a_secret_that_others_may_read_is_refused_at_each_look(tmp_path: Path, name: str) -> None:
    """As an upstream's credential: whoever has it can ask this OPA, or be the daemon to it."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    access = RemoteAccess("https://127.0.0.1:1", writers=Writers(frozenset({0, os.geteuid()})), **{name: secret})
    for mode in (0o640, 0o604):
        secret.chmod(mode)
        with pytest.raises(AccessRefused, match="may read it; chmod 600"):
            access.seen()
    secret.chmod(0o600)
    access.seen()


@pytest.mark.parametrize(
    ("files_", "says"),
    [
        ({"token_file": "two words"}, "one token"),
        ({"token_file": ""}, "one token"),
        ({"ca_file": "nonsense"}, "no certificates"),
        ({"client_cert_file": "nonsense", "client_key_file": "nonsense"}, "no certificate with its key"),
    ],
)
def test_broken_files_of_the_access_are_named_and_not_quoted(tmp_path: Path, files_: dict[str, str], says: str) -> None:
    for name, text in files_.items():
        (tmp_path / name).write_text(text)
    access = RemoteAccess("https://127.0.0.1:1", **{name: tmp_path / name for name in files_})
    with pytest.raises(AccessRefused, match=says) as raised:
        access.endpoint()
    assert str(tmp_path) in str(raised.value)
    assert "words" not in str(raised.value)


@pytest.mark.parametrize("name", [".", "token", "revisions.jsonl"])
async def test_loc_02_each_look_refuses_what_others_may_write(tmp_path: Path, name: str) -> None:
    """The token is what OPA knows the daemon by, and the notes say what it may serve. Mended, all goes on by itself."""
    (tmp_path / "token").write_text("hunter2")
    (tmp_path / "token").chmod(0o600)
    writers = Writers(frozenset({0, os.geteuid()}))
    revision = "1" * 64
    async with stub(http(ANSWER)) as server:
        engine = RemoteEngine(
            RemoteAccess(server.url, tmp_path / "token", writers=writers), 20.0, RealClock(), CountingIds()
        )
        notes = tmp_path / "revisions.jsonl"
        notes.write_bytes(Passed(revision, 1, "2026-12-01T00:00:00Z").to_json())

        async def look() -> None:
            assert set(revisions.read(notes, writers)) == {revision}
            await engine.connect()

        for _ in range(2):  # before the first look, and again when all was well before
            (tmp_path / name).chmod(0o777)
            with pytest.raises((AccessRefused, RevisionsUnreadable), match=f"others may write .*chmod go-w {tmp_path}"):
                await look()
            (tmp_path / name).chmod(0o700)
            await look()
        await engine.close()


def test_token_never_goes_over_plain_http() -> None:
    with pytest.raises(AccessRefused, match="use https"):
        RemoteAccess("http://10.0.0.1:8181").endpoint()
