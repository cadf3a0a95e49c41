"""``policy.opa``: every key acts or is refused, at its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from tests.unit.config.conftest import DAEMON, Folder

REMOTE = {"url": "https://opa.example.com:8181", "revisions": "revisions.jsonl"}


@pytest.fixture
def opa(folder: Folder, change: Callable[[str, str, Any], None]) -> Callable[[dict[str, Any] | None], Folder]:
    """The section, with engine opa and a program and files that are there."""
    program = folder.path / "opa"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("token", "ca.pem", "client.crt", "client.key"):
        (folder.path / name).write_text("x")
        (folder.path / name).chmod(0o600)

    def put(section: dict[str, Any] | None) -> Folder:
        change(DAEMON, "policy.engine", "opa")
        change(DAEMON, "policy.opa", section)
        return folder

    return put


def told(folder: Folder, key: str) -> str:
    """What is said of a key, which must be the only fault."""
    (fault,) = folder.faults()
    assert fault.key == key
    assert fault.next_step
    path = tuple(key.split("."))
    assert fault.place.line == folder.line(DAEMON, path)
    return str(fault.message)


def test_embedded_is_shipped_and_has_no_opa(folder: Folder) -> None:
    assert folder.load().policy.opa is None


def test_supervised(opa: Callable[..., Folder]) -> None:
    folder = opa({"command": "opa", "run_dir": "/run/kblockd/opa"})
    assert folder.load().policy.opa == SupervisedOpa(folder.path / "opa", Path("/run/kblockd/opa"))


def test_remote_with_everything(opa: Callable[..., Folder]) -> None:
    keys = {"ca_file": "ca.pem", "client_cert_file": "client.crt", "client_key_file": "client.key"}
    folder = opa({**REMOTE, **keys, "token_file": "token", "command": "opa"})
    found = folder.load().policy.opa
    assert isinstance(found, RemoteOpa)
    assert found.access.url == REMOTE["url"]
    assert found.access.client_key_file == folder.path / "client.key"
    assert (found.revisions, found.command) == (folder.path / "revisions.jsonl", folder.path / "opa")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8181", "http://[::1]:8181", "https://10.0.0.1", "https://opa/"])
def test_urls_that_are_taken(opa: Callable[..., Folder], url: str) -> None:
    opa({**REMOTE, "url": url, "token_file": "token"}).load()


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        (None, "policy.opa", "is null, but policy.engine is opa"),
        ({"command": "opa"}, "policy.opa", "has no run_dir"),
        ({"run_dir": "/run/x"}, "policy.opa", "has no command"),
        ({"url": "https://opa"}, "policy.opa", "could serve an unchecked policy"),
        ({"command": "opa", "run_dir": "/run/x", "token_file": "token"}, "policy.opa.token_file", "only with url"),
        ({"command": "opa", "run_dir": "/run/x", "revisions": "r"}, "policy.opa.revisions", "only with url"),
        ({"command": "opa", "run_dir": "/run/" + "x" * 56}, "policy.opa.run_dir", "61 bytes, more than the 60"),
        ({"command": "absent", "run_dir": "/run/x"}, "policy.opa.command", "not a program"),
        ({"command": "token", "run_dir": "/run/x"}, "policy.opa.command", "not a program"),
        ({**REMOTE, "run_dir": "/run/x"}, "policy.opa.run_dir", "only without url"),
        ({**REMOTE, "url": "http://opa.example.com:8181"}, "policy.opa.url", "plain http to another machine"),
        ({**REMOTE, "url": "http://localhost:8181"}, "policy.opa.url", "plain http to another machine"),
        ({**REMOTE, "url": "http://10.0.0.1:8181"}, "policy.opa.url", "plain http to another machine"),
        ({**REMOTE, "url": "http://127.0.0.1:1", "ca_file": "ca.pem"}, "policy.opa.ca_file", "only with https"),
        ({**REMOTE, "client_cert_file": "client.crt"}, "policy.opa", "has only one of"),
        ({**REMOTE, "token_file": "absent"}, "policy.opa.token_file", "cannot be read"),
        ({**REMOTE, "url": "ftp://opa"}, "policy.opa.url", "only scheme, host and port"),
        ({**REMOTE, "url": "https://user:word@opa"}, "policy.opa.url", "only scheme, host and port"),
        ({**REMOTE, "url": "https://opa/v1"}, "policy.opa.url", "only scheme, host and port"),
        ({**REMOTE, "url": "https://opa:99999"}, "policy.opa.url", "only scheme, host and port"),
        ({**REMOTE, "password": "x"}, "policy.opa.password", ""),
    ],
)
def test_what_does_not_act_or_is_not_safe_is_refused(
    opa: Callable[..., Folder], section: dict[str, Any] | None, key: str, said: str
) -> None:
    """A switch that silently does nothing is a defect; a token never goes over plain http."""
    assert said in told(opa(section), key)


def test_opa_beside_the_embedded_engine_is_refused(folder: Folder, change: Callable[[str, str, Any], None]) -> None:
    change(DAEMON, "policy.opa", REMOTE)
    assert "has no effect with engine: embedded" in told(folder, "policy.opa")


def test_opa_needs_memory(opa: Callable[..., Folder], change: Callable[[str, str, Any], None]) -> None:
    folder = opa({"command": "opa", "run_dir": "/run/x"})
    change(DAEMON, "policy.memory_mib", 128)
    assert "at least 256" in told(folder, "policy.memory_mib")


@pytest.mark.parametrize("key", ["token_file", "client_key_file"])
def test_a_secret_that_others_may_read_is_refused(opa: Callable[..., Folder], key: str) -> None:
    """As an upstream's credential is; certificates are public."""
    keys = {"ca_file": "ca.pem", "client_cert_file": "client.crt", "client_key_file": "client.key"}
    folder = opa({**REMOTE, **keys, "token_file": "token"})
    for name in keys.values():
        (folder.path / name).chmod(0o644 if name != "client.key" else 0o600)
    folder.load()
    (folder.path / ("token" if key == "token_file" else "client.key")).chmod(0o640)
    assert "may be read by group or others" in told(folder, f"policy.opa.{key}")
