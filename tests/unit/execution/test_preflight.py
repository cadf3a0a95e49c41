"""What a caller learns of an upstream that cannot be used: the code, never where a credential or a host is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kblockd.domain.errors import KblockError
from kblockd.execution.preflight import _check_upstream
from kblockd.upstream.faults import UpstreamFault


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("code", ["CREDENTIAL_UNREADABLE", "ADDRESS_REFUSED", "ADDRESS_UNKNOWN", "BREAKER_OPEN"])
async def test_neither_paths_nor_hosts_reach_a_caller(code: str, again: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Nor a result: a refusal on the way back in (9r) is sealed with its words, which the agent reads."""

    async def preflight(_: float) -> None:
        raise UpstreamFault(code, "/etc/kblockd/shop.token of shop.internal")

    upstreams = {"shop": SimpleNamespace(preflight=preflight)}
    parts: Any = SimpleNamespace(upstreams=upstreams, clock=SimpleNamespace(monotonic=lambda: 0.0))
    action: Any = SimpleNamespace(upstream="shop", execution_id="exe_1")
    with pytest.raises(KblockError) as refused:
        await _check_upstream(parts, action, again=again)
    assert refused.value.message.startswith(f"{code}: upstream shop cannot be used")
    assert "shop.token" not in refused.value.message
    assert "shop.internal" not in refused.value.message
    assert "shop.token of shop.internal" in caplog.text  # the operator reads it in the log
