"""The call of most cases."""

from __future__ import annotations

from kblockd.client import Answer, Call
from tests.harness import Site
from tests.integration.pipeline.local import refund_in


def demo(order_id: str, key: str, amount: str = "100.00") -> Call:
    """A refund that nobody needs to approve."""
    return refund_in("demo", order_id, key=key, operation="demo.refund", amount=amount)


def execute(site: Site, call: Call) -> Answer:
    """As the agent."""
    with site.client() as agent:
        return agent.execute(call)
