"""A refund service over plain HTTP, on the misbehaving front: POST /refunds acts, everything else reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.harness import merged, refund_contract
from tests.upstreams.messages import Reply, Request, said
from tests.upstreams.misbehaving import MisbehavingServer, Mode
from tests.upstreams.rest_app import EFFECT_KEY, RestApp


class ShopApp(RestApp):
    """What stands behind the front. Each order may have an answer of its own, and each path a fault of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Callable[[dict[str, Any]], Reply]] = {}
        self.faults: dict[str, Callable[[], Reply]] = {}  # path to the answer that replaces the good one
        self.orders: dict[str, dict[str, Any]] = {}  # what is said of an order besides
        self.unpaid: set[str] = set()
        self.done = threading.Event()  # accepted operations have ended

    def answer(self, request: Request, note: str) -> Reply:
        if not self.is_call(request):
            return super().answer(request, note)
        asked = request.document
        found = self.of(asked["order_id"])
        return self.answers.get(asked["order_id"], created)(found[-1] if found else asked)

    def of(self, order_id: str) -> list[dict[str, Any]]:
        """The refunds of one order."""
        return self.refunds.of(order_id)

    def read(self, path: str, query: Mapping[str, str]) -> Reply:
        if fault := self.faults.get(path):
            return fault()
        if path.startswith("/orders/"):
            return said(200, self._order(path.removeprefix("/orders/")))
        if path.startswith("/operations/"):
            running = not self.done.is_set()
            return said(202 if running else 200, {"state": "running" if running else "done", "ok": True})
        return super().read(path, query)

    def _order(self, order_id: str) -> dict[str, Any]:
        order = {**self.orders.get(order_id, {}), **self.refunds.order(order_id)}
        return {**order, "status": "open"} if order_id in self.unpaid and not self.of(order_id) else order


class Shop(MisbehavingServer):
    """The front, and what it can do besides: stop listening right after one order was read."""

    def __init__(self, port: int = 0) -> None:
        self.shop = ShopApp()
        self.deaf_after = ""
        super().__init__(self.shop, port=port)

    def well(self) -> None:
        """Everything as at the start, but for what was done."""
        self.mode = Mode.OK
        self.deaf_after, self.shop.refunds.hidden = "", False
        self.shop.faults.clear()
        self.shop.answers.clear()
        self.shop.done.clear()
        self.shop.unpaid.clear()
        self._released.clear()

    def _handle(self, stream: Any, request: Request) -> bool:
        goes_on = super()._handle(stream, request)
        if not self.deaf_after or request.target != f"/orders/{self.deaf_after}":
            return goes_on
        self.deaf_after = ""
        self.leave()
        return False


def created(row: Mapping[str, Any]) -> Reply:
    """The usual answer."""
    return said(201, {"ok": True, "refund_id": row["refund_id"], "status": "succeeded"})


def accepted(row: Mapping[str, Any]) -> Reply:
    """Work that goes on."""
    return said(202, {"ok": True, "operation": f"op-{row['refund_id']}"})


def upstream(url: str, secrets: Mapping[str, str]) -> dict[str, Any]:
    """upstreams/shop.yaml; ``secrets`` has the sources of the two identities."""
    success = {"success": {"pointer": "/ok", "equals": True}}
    call = {"path": "/refunds", "operation": "/operation"}
    poll = {"poll": {"method": "GET", "path": "/operations/{operation}"}}
    tools = {
        "refund": {**call, **success, **poll},
        "refund_plain": call,
        "get_order": {"method": "GET", "path": "/orders/{order_id}"},
        "list_refunds": {"method": "GET", "path": "/refunds"},
        "find_refund": {"method": "GET", "path": "/lookup"},
    }
    return {
        "adapter": "http",
        "url": url,
        "allow_addresses": ["127.0.0.0/8"],
        "tls": {"ca_file": None, "spki_sha256": []},
        "tools": {},
        "credentials": dict(secrets),
        "settings": {"tools": tools},
        "maximum_concurrent_calls": 16,
        "breaker": {"failures": 1000, "open_seconds": 1},
    }


def contract(environment: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The refund contract over this upstream."""
    base = refund_contract(
        {
            "action": {"environment": environment},
            "tool": {"upstream": "shop", "effect_key": {"in": "header", "name": EFFECT_KEY}},
            "execution": {"credential_source": "static", "request_timeout_seconds": 1, "maximum_concurrent_actions": 1},
            "verification": {"maximum_duration_seconds": 1},
        }
    )
    found: dict[str, Any] = merged(base, changes)
    return found
