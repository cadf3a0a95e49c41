"""Stored megabytes are read beside the loop: what one agent sent, or was answered, is not everybody's wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.admission.offload import INLINE_BYTES
from kblockd.approvals import service
from kblockd.domain.canonical import canonical, sha256_hex
from kblockd.execution import answers, load
from kblockd.execution.journal import Written

VALUE = {"arguments": {"memo": "x" * INLINE_BYTES}, "intent": {}}
STORED = canonical({"salt": "s", "kind": "output", "value": VALUE})
AT = "2026-12-01T00:00:00.000000Z"
APPROVAL: Any = SimpleNamespace(
    approval_id="apr_1", execution="exe_1", action_sha256="", presentation_payload="d", presented_sha256="",
    requester="a", agent="a", tenant="t", state="used", count=1, roles=(), floor_roles=(), not_before=AT, not_after=AT,
)  # fmt: skip


async def _payload(_: object) -> bytes:
    return STORED


STORE: Any = SimpleNamespace(payload=_payload)
ANSWERED: list[int] = []
PARTS: Any = SimpleNamespace(store=STORE, admission=SimpleNamespace(answered=ANSWERED.append))


def _watched(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """The names of the threads in which it runs."""
    threads: list[str] = []
    work: Callable[..., Any] = getattr(module, name)

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return work(*given)

    monkeypatch.setattr(module, name, watched)
    return threads


def _beside(threads: list[str]) -> bool:
    return bool(threads) and all(name.startswith("foreign-input") for name in threads)


async def test_a_long_stored_value_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = _watched(monkeypatch, load, "reparse")
    assert await load.value_of(PARTS, "exe_1", "d") == VALUE
    assert _beside(threads)
    own = _watched(monkeypatch, load, "written")
    digest = sha256_hex(STORED)
    assert await load.value_of(PARTS, "exe_1", digest, Written(payloads={digest: STORED})) == VALUE
    assert _beside(own)


def _row(output: str, snapshot: str) -> Any:
    return SimpleNamespace(id="exe_1", output_sha256=output, snapshot_sha256=snapshot)


async def test_a_long_output_is_revealed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pointers(*_: object) -> Any:
        return ()

    monkeypatch.setattr(answers, "load_reveal", pointers)
    monkeypatch.setattr(answers, "reveal", lambda pointers, document: document)
    threads = _watched(monkeypatch, answers, "canonical")
    shown = await answers._revealed(PARTS, _row("d", ""), Written())
    assert shown == canonical({"output": VALUE})
    assert _beside(threads)


async def test_what_is_read_and_hardly_shown_costs_its_caller_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of which the contract reveals nothing, asked for again and again, by callers that do not wait."""

    async def pointers(*_: object) -> Any:
        return ()

    monkeypatch.setattr(answers, "load_reveal", pointers)
    monkeypatch.setattr(answers, "reveal", lambda pointers, document: {})
    ANSWERED.clear()
    row = _row("d", "d")
    assert await answers._revealed(PARTS, row, Written()) == b"{}"
    assert sum(ANSWERED) == 2 * len(STORED)
    impatient = asyncio.ensure_future(answers._revealed(PARTS, row, Written()))
    while len(ANSWERED) < 3:
        await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    assert ANSWERED[2:] == [len(STORED)]


async def test_agt_05_a_page_of_approvals_does_not_hold_what_it_does_not_show() -> None:
    asked = service.Approvals(STORE, {}, Any, SimpleNamespace(now=lambda: None), Any)  # type: ignore[arg-type]
    whole, brief = await asked._shown(APPROVAL), await asked._shown(APPROVAL, brief=True)
    assert (whole.arguments_json, whole.intent_json) == (canonical(VALUE["arguments"]), b"{}")
    assert brief == replace(whole, arguments_json=b"", intent_json=b"")


async def test_what_approvers_are_shown_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of approvals holds up to a hundred documents of a megabyte."""
    arguments = canonical(VALUE["arguments"])
    threads = _watched(monkeypatch, service, "reparse")
    asked = service.Approvals(STORE, {}, Any, SimpleNamespace(now=lambda: None), Any)  # type: ignore[arg-type]
    view = await asked._shown(APPROVAL)
    assert view.arguments_json == arguments
    assert _beside(threads)
