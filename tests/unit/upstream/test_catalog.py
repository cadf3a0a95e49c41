"""Which plugins are loaded and which upstreams are opened; a refused start says which and why."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from kblockd.upstream.adapter import AdapterContext, AdapterPlugin, Outcome, Sent
from kblockd.upstream.catalog import CatalogError, load_plugins, open_upstreams
from kblockd.upstream.connection import IDLE_SECONDS
from kblockd.upstream.faults import UpstreamFault
from kblockd.upstream.model import UpstreamConfig
from tests.unit.upstream.plugin import Plugin, call


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    speed: int = 1


class Loose(BaseModel):
    speed: int = 1


class Recorder:
    """A plugin that notes what is opened and closed."""

    api_version = 2
    settings_model: Any = Settings

    def __init__(self) -> None:
        self.events: list[str] = []
        self.contexts: list[AdapterContext] = []
        self.outcome = Outcome(Sent.LOST, code="CONNECTION_LOST")

    def open(self, context: AdapterContext) -> Any:
        self.contexts.append(context)
        self.events.append(f"open {context.upstream}")

        async def behave(_: object) -> Outcome:
            return self.outcome

        adapter = Plugin(behave)
        events = self.events

        async def close() -> None:
            events.append(f"close {context.upstream}")
            if context.upstream == "b":
                raise RuntimeError("cannot close")

        adapter.close = close  # type: ignore[method-assign]  # only this one differs
        return adapter


def _plugin(**changes: Any) -> Recorder:
    plugin = Recorder()
    for name, value in changes.items():
        setattr(plugin, name, value)
    return plugin


def _points(monkeypatch: pytest.MonkeyPatch, **plugins: object) -> Any:
    """Real entry points into a module made for the test."""
    module = types.ModuleType("kblockd_test_plugins")
    for name, plugin in plugins.items():
        setattr(module, name, plugin)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = [
        importlib.metadata.EntryPoint(name.partition("__")[0], f"{module.__name__}:{name}", "kblockd.adapters")
        for name in plugins
    ]
    return lambda: found


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "other version": ({"one": _plugin(api_version=1)}, "plugin API 1, this daemon 2"),
    "no version": ({"one": object()}, "plugin API None"),
    "two of a name": ({"one": _plugin(), "one__again": _plugin()}, "found 2"),
    "none of the name": ({"other": _plugin()}, "found 0; installed: other"),
    "loose settings": ({"one": _plugin(settings_model=Loose)}, "frozen and forbid unknown keys"),
    "no settings model": ({"one": _plugin(settings_model=dict)}, "must be a pydantic model"),
    "no open": ({"one": _plugin(open=None)}, r"no open\(context\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plugin_that_does_not_fit_refuses_the_start(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """API version and cardinality are checked, and the message says what was found."""
    plugins, message = REFUSED[case]
    with pytest.raises(CatalogError, match=message):
        load_plugins(["one"], _points(monkeypatch, **plugins))


def test_a_plugin_that_cannot_be_imported_refuses_the_start() -> None:
    """The message names the entry point."""
    point = importlib.metadata.EntryPoint("one", "kblockd_absent_module:ADAPTER", "kblockd.adapters")
    with pytest.raises(CatalogError, match="kblockd_absent_module:ADAPTER cannot be loaded"):
        load_plugins(["one"], lambda: [point])


def test_only_configured_names_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed but not named is not imported; a name stands once."""
    points = _points(monkeypatch, one=_plugin(), broken=_plugin(api_version=9))
    assert list(load_plugins(["one"], points)) == ["one"]
    with pytest.raises(CatalogError, match="is listed twice"):
        load_plugins(["one", "one"], points)


def test_the_installed_http_plugin_is_found() -> None:
    """The real entry point."""
    (plugin,) = load_plugins(["http"]).values()
    assert plugin.api_version == 2


def _config(**changes: Any) -> UpstreamConfig:
    return UpstreamConfig.model_validate(
        {"adapter": "one", "url": "http://127.0.0.1:9/x", "allow_addresses": ["127.0.0.0/8"], **changes}
    )


def _opened(plugin: Recorder, elapsed: Callable[[], float] = time.monotonic, **configs: UpstreamConfig) -> Any:
    plugins: dict[str, AdapterPlugin] = {"one": plugin}  # type: ignore[dict-item]  # a duck
    return open_upstreams(configs, plugins, max_response_bytes=1000, elapsed=elapsed)


async def test_upstreams_are_closed_in_reverse_whatever_happens(caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot close keeps nobody else open."""
    plugin = Recorder()
    async with _opened(plugin, b=_config(), a=_config(), c=_config()) as upstreams:
        assert list(upstreams) == ["a", "b", "c"]
        assert upstreams.get("d") is None
        assert str(upstreams["a"].origin) == "http://127.0.0.1:9"
    assert plugin.events == ["open a", "open b", "open c", "close c", "close b", "close a"]
    assert "upstream b did not close" in caplog.text


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "unknown adapter": ({"adapter": "absent"}, "upstream a: adapter 'absent' is not among"),
    "unknown setting": ({"settings": {"sped": 2}}, "upstream a: settings.sped"),
    "wrong setting": ({"settings": {"speed": "fast"}}, "upstream a: settings.speed"),
    "ca file": (
        {"url": "https://x.example", "tls": {"ca_file": "/absent.pem"}},
        "upstream a: tls.ca_file: /absent.pem",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_an_upstream_that_cannot_be_opened_refuses_the_start(case: str) -> None:
    """Those already open are closed again."""
    changes, message = BROKEN[case]
    plugin = Recorder()
    with pytest.raises(CatalogError, match=message):
        async with _opened(plugin, a=_config(**changes)):
            pass
    assert plugin.events == []


async def test_one_tls_context_an_upstream() -> None:
    """Making one blocks the loop for 21 ms, so it is made once; http needs none."""
    plugin = Recorder()
    async with _opened(plugin, a=_config(url="https://x.example"), b=_config()):
        assert plugin.contexts[0].ssl is not None
        assert plugin.contexts[1].ssl is None


async def test_connections_that_were_kept_before_the_machine_slept_are_not_used() -> None:
    """Monotonic time has stood still; the servers have not, and each says farewell to what it has kept for long."""
    slept, connections, plugin = 0.0, 0, Recorder()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.readline() != b"":
            if await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def ask() -> int:
        exchange = plugin.contexts[0].exchange(call().deadline)
        try:
            return (await exchange.send("GET", b"/", [], b"")).status
        finally:
            await exchange.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, _opened(plugin, lambda: slept, a=_config(url=url)):
        assert (await ask(), await ask(), connections) == (204, 204, 1)
        slept += IDLE_SECONDS
        assert (await ask(), connections) == (204, 2)


async def test_r203_the_breaker_is_asked_in_preflight_only() -> None:
    """R203: after failures in a row preflight refuses; calls themselves are never held back by it."""
    plugin = Recorder()
    config = _config(breaker={"failures": 2, "open_seconds": 60})
    async with _opened(plugin, a=config) as upstreams:
        upstream = upstreams["a"]
        deadline = call().deadline
        await upstream.preflight(deadline)
        for _ in range(2):
            await upstream.write.invoke(call())
        with pytest.raises(UpstreamFault) as fault:
            await upstream.preflight(deadline)
        assert fault.value.code == "BREAKER_OPEN"
        plugin.outcome = Outcome(Sent.ANSWERED)
        assert (await upstream.write.invoke(call())).sent is Sent.ANSWERED
        await upstream.preflight(deadline)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"allow_addresses": []}, "ADDRESS_REFUSED"),
        ({"credentials": {"write": "file:/absent"}}, "CREDENTIAL_UNREADABLE"),
        ({"credentials": {"read": "env:KBLOCKD_ABSENT"}}, "CREDENTIAL_UNREADABLE"),
    ],
)
async def test_preflight_refuses_before_anything_is_consumed(changes: dict[str, Any], code: str) -> None:
    """R076, R077: address and both credentials, without connecting."""
    async with _opened(Recorder(), a=_config(**changes)) as upstreams:
        with pytest.raises(UpstreamFault) as fault:
            await upstreams["a"].preflight(call().deadline)
        assert fault.value.code == code


async def test_r636_each_identity_has_its_own_credential(tmp_path: Path) -> None:
    """R618, R636: what reads never carries the credential that writes."""
    refs = {}
    for name in ("write", "read"):
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(f"Bearer for-{name}-only")
        refs[name] = f"file:{path}"
    seen: list[bytes | None] = []
    plugin = Recorder()
    async with _opened(plugin, a=_config(credentials=refs)) as upstreams:
        upstream = upstreams["a"]
        adapter: Plugin = upstream.write._adapter  # type: ignore[assignment]  # the recorder's
        for outcome in (upstream.write.invoke(call()), upstream.read.read(call()), upstream.read.lookup(call())):
            await asyncio.wait_for(outcome, 10)
        seen = [given.credential for given in adapter.calls]
    assert seen == [b"Bearer for-write-only", b"Bearer for-read-only", b"Bearer for-read-only"]
