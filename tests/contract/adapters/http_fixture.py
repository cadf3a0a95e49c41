"""The HTTP plugin in front of a small REST service for refunds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kblockd.upstream.adapter import Sent
from kblockd.upstream.catalog import load_plugins, open_upstreams
from kblockd.upstream.model import UpstreamConfig
from tests.contract.adapters.subject import CREDENTIAL, Subject
from tests.upstreams.misbehaving import MisbehavingServer, Mode
from tests.upstreams.rest_app import RestApp

OUTCOMES = {
    Mode.ERROR_AFTER_EFFECT: (Sent.LOST, "HTTP_500"),
    Mode.GATEWAY_TIMEOUT: (Sent.LOST, "HTTP_504"),
    Mode.GARBAGE: (Sent.LOST, "ANSWER_NOT_JSON"),
}


def settings() -> dict[str, object]:
    """As a reviewer would write them."""
    return {
        "document": {"path": "/openapi.json"},
        "request_ids": {"request": "X-Request-Id"},
        "tools": {
            "refund": {
                "path": "/v1/orders/{order_id}/refunds",
                "definition": "/paths/~1refunds/post",
                "success": {"pointer": "/ok", "equals": True},
            }
        },
    }


@asynccontextmanager
async def open_subject(tmp_path: Path) -> AsyncIterator[Subject]:
    """Through the installed entry point and the catalog, as the daemon does."""
    secret = tmp_path / "credential"
    secret.touch(mode=0o600)
    secret.write_text(CREDENTIAL + "\n")
    app = RestApp()
    with MisbehavingServer(app) as server:
        config = UpstreamConfig.model_validate(
            {
                "adapter": "http",
                "url": f"http://127.0.0.1:{server.port}",
                "allow_addresses": ["127.0.0.0/8"],
                "credentials": {"write": f"file:{secret}", "read": "none"},
                "settings": settings(),
            }
        )
        async with open_upstreams({"shop": config}, load_plugins(["http"]), max_response_bytes=1 << 20) as upstreams:
            yield Subject(
                server=server,
                upstream=upstreams["shop"],
                tool="refund",
                arguments={"order_id": "o/1", "amount": "10.00", "currency": "EUR"},
                describe_otherwise=app.turn_keys,
                change_description=app.change,
                effect_key_of=lambda request: request.headers["idempotency-key"],
                traceparent_of=lambda request: request.headers["traceparent"],
                outcomes=OUTCOMES,
                late_evidence=True,
            )
