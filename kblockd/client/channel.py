"""Channel options of both clients, without automatic retries (RPC-06)."""

from __future__ import annotations

import json
from typing import Final

from google.protobuf.message import Message

MAX_MESSAGE: Final = 4 << 20
WAIT_SECONDS: Final = 120.0  # R184
MARGIN_SECONDS: Final = 30.0
OPTIONS: Final = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}]}]})),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE + 65_536),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.default_authority", "localhost"),
    # Reconnects quickly to a restarted daemon, and keeps one client's failures from affecting another. The minimum wait
    # between attempts stays at gRPC's default, because it also limits each attempt, and the daemon may be briefly busy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


def check(target: str, wait_seconds: float, margin_seconds: float) -> None:
    """Raises ValueError for a target that is neither a Unix socket nor host:port, or for impossible times."""
    if not target.startswith("unix:/") and ":" not in target:
        raise ValueError(f"{target!r}: give unix:/path/to.sock or host:port")
    if wait_seconds < 0 or margin_seconds <= 0:
        raise ValueError("wait_seconds must not be negative and margin_seconds must be more than zero")


def serialize(message: Message) -> bytes:
    """The bytes of a request."""
    data: bytes = message.SerializeToString()
    return data
