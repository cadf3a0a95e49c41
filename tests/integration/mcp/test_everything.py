"""The reference server of the protocol's authors, in Node: the majority of servers out there are built like it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kblockd.upstream.adapter import Sent
from tests.integration.mcp.rig import HANDSHAKE, adapter, call

SERVER = Path(".tools/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL. It takes its port from the environment and cannot say which free one it took."""
    if os.environ.get("CI") != "true":
        if shutil.which("node") is None:
            pytest.skip("Node is not installed")
        if not (ROOT / SERVER).exists():
            pytest.skip("run `make tools` to install @modelcontextprotocol/server-everything")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("everything") / "log").open("wb")
    process = subprocess.Popen(
        ["node", str(ROOT / SERVER), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
    )
    try:
        _wait(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        log.close()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise RuntimeError(f"server-everything ended with {process.returncode}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("server-everything did not listen within 60 s")


@pytest.mark.parametrize("protocol", ["auto", HANDSHAKE])
async def test_describe_and_call(everything: str, protocol: str) -> None:
    """R176: handshake, listing and calls as the TypeScript SDK speaks them."""
    opened = adapter(everything, protocol)
    described = await opened.describe("get-sum")
    assert described.definition["inputSchema"]["required"] == ["a", "b"]
    assert described.server_version
    outcome = await opened.invoke(call("get-sum", {"a": 2, "b": 3}))
    assert (outcome.sent, outcome.is_error) == (Sent.ANSWERED, False)
    assert "5" in outcome.output["content"][0]["text"]
    assert "session_sha256" in outcome.request_ids


async def test_structured_content(everything: str) -> None:
    """R214: structuredContent that keeps its schema."""
    outcome = await adapter(everything).invoke(call("get-structured-content", {"location": "New York"}))
    assert (outcome.sent, outcome.code) == (Sent.ANSWERED, "")
    assert "temperature" in outcome.output


async def test_mcp_10_a_long_operation_with_progress(everything: str) -> None:
    """R196, R197: progress neither extends the deadline nor disturbs a call that ends in time."""
    opened = adapter(everything)
    long = {"duration": 3, "steps": 6}
    begun = time.monotonic()
    lost = await opened.invoke(call("trigger-long-running-operation", long, seconds=1.0))
    assert (lost.sent, lost.code) == (Sent.LOST, "UPSTREAM_TIMEOUT")
    assert time.monotonic() - begun < 10
    done = await opened.invoke(call("trigger-long-running-operation", {"duration": 1, "steps": 4}))
    assert (done.sent, done.is_error) == (Sent.ANSWERED, False)


async def test_mcp_06_refusals(everything: str) -> None:
    """Arguments that fail the schema: an error answer, never a success and never "not executed"."""
    outcome = await adapter(everything).invoke(call("get-sum", {"a": "two"}))
    assert (outcome.sent, outcome.is_error) == (Sent.ANSWERED, True)
