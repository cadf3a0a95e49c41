"""What a plugin brings to the adapter contract suite: itself, opened through the catalog, in front of a bad server.

A fixture module (``http_fixture``, ``mcp_fixture``) has one ``open_subject(tmp_path)``, an async context manager.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kblockd.upstream.adapter import Sent, ToolCall
from kblockd.upstream.catalog import Upstream
from tests.upstreams.misbehaving import MisbehavingServer, Mode, Request

CREDENTIAL = "Bearer c2VjcmV0LW9mLXRoZS11cHN0cmVhbQ"  # decodes to a readable secret, so that this form counts too
SECRETS = ("c2VjcmV0LW9mLXRoZS11cHN0cmVhbQ", "secret-of-the-upstream")


@dataclass(frozen=True, slots=True)
class Subject:
    """One plugin under test. ``tool`` has the effect; ``arguments`` are good ones for it.

    ``outcomes`` says what this plugin makes of a mode where the contract leaves room (Sent and code); everything else
    is the suite's. ``describe_otherwise`` makes the server serve the same definition with its keys in another order,
    ``change_description`` another text. ``late_evidence``: an answer after the deadline is still read.
    """

    server: MisbehavingServer
    upstream: Upstream
    tool: str
    arguments: Mapping[str, object]
    describe_otherwise: Callable[[], None]
    change_description: Callable[[], None]
    effect_key_of: Callable[[Request], str]  # where the server finds the effect key in a call
    traceparent_of: Callable[[Request], str]
    outcomes: Mapping[Mode, tuple[Sent, str]] = field(default_factory=dict)
    late_evidence: bool = False
    effect_key: str = "0" * 63 + "7"
    effect_key_in: Literal["argument", "meta", "header", "none"] = "header"
    effect_key_name: str = "Idempotency-Key"
    traceparent: str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def call(self, seconds: float) -> ToolCall:
        """A call that ends ``seconds`` from now."""
        return ToolCall(
            tool=self.tool,
            arguments=self.arguments,
            effect_key=self.effect_key,
            effect_key_in=self.effect_key_in,
            effect_key_name=self.effect_key_name,
            deadline=time.monotonic() + seconds,
            credential=None,  # the wrapper puts the upstream's own in
            trace={"traceparent": self.traceparent},
        )
