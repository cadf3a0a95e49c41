"""A refund service over plain HTTP, on the misbehaving front: POST /refunds acts, everything else reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.harness import merged, refund_contract
from tests.upstreams.misbehaving import MisbehavingServer, Mode, Reply, Request

EFFECT_KEY = "x-effect-key"


class ShopApp:
    """What stands behind the front. Each order may have an answer of its own, and each path a fault of its own."""

    def __init__(self) -> None:
        self.refunds: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], Reply]] = {}
        self.faults: dict[str, Callable[[], Reply]] = {}  # path to the answer that replaces the good one
        self.orders: dict[str, dict[str, Any]] = {}  # what is said of an order besides
        self.unpaid: set[str] = set()
        self.hidden = False  # the lookup finds nothing
        self.done = threading.Event()  # accepted operations have ended

    def is_call(self, request: Request) -> bool:
        return request.method == "POST"

    def act(self, request: Request) -> dict[str, Any]:
        """The effect."""
        asked = json.loads(request.body)
        row = {**asked, "refund_id": f"re_{len(self.refunds) + 1}", "key": request.headers.get(EFFECT_KEY, "")}
        self.refunds.append(row)
        return row

    def answer(self, request: Request, note: str) -> Reply:
        if self.is_call(request):
            asked = json.loads(request.body)
            found = [row for row in self.refunds if row["order_id"] == asked["order_id"]]
            return self.answers.get(asked["order_id"], created)(found[-1] if found else asked)
        url = urlsplit(request.target)
        if fault := self.faults.get(url.path):
            return fault()
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        return self._read(url.path, query)

    def of(self, order_id: str) -> list[dict[str, Any]]:
        """The refunds of one order."""
        return [row for row in self.refunds if row["order_id"] == order_id]

    def _read(self, path: str, query: Mapping[str, str]) -> Reply:
        if path.startswith("/orders/"):
            return said(200, self._order(path.removeprefix("/orders/")))
        if path == "/refunds":
            return said(200, {"refunds": self.of(query["order_id"])})
        if path == "/lookup":
            found = [row for row in self.refunds if row["key"] == query["key"] and not self.hidden]
            return said(200, {"found": bool(found)})
        if path.startswith("/operations/"):
            running = not self.done.is_set()
            return said(202 if running else 200, {"state": "running" if running else "done", "ok": True})
        return said(404, {"error": "no such path"})

    def _order(self, order_id: str) -> dict[str, Any]:
        found = self.of(order_id)
        return {
            **self.orders.get(order_id, {}),
            "order_id": order_id,
            "exists": True,
            "version": 1 + len(found),
            "status": "refunded" if found else "open" if order_id in self.unpaid else "paid",
            "amount": "100.00",
            "currency": "EUR",
            "refunded": "0.00" if not found else "100.00",
        }


class Shop(MisbehavingServer):
    """The front, and what it can do besides: stop listening right after one order was read."""

    def __init__(self) -> None:
        self.shop = ShopApp()
        self.deaf_after = ""
        super().__init__(self.shop)

    @property
    def url(self) -> str:
        """Its origin."""
        return f"http://127.0.0.1:{self.port}"

    def listen_again(self) -> None:
        """On the port that it had."""
        self._listener = self._listen(self.port)

    def well(self) -> None:
        """Everything as at the start, but for what was done."""
        self.mode = Mode.OK
        self.deaf_after, self.shop.hidden = "", False
        self.shop.faults.clear()
        self.shop.answers.clear()
        self.shop.done.clear()
        self.shop.unpaid.clear()
        self._released.clear()

    def _handle(self, stream: Any, request: Request) -> bool:
        goes_on = super()._handle(stream, request)
        if self.deaf_after and request.target == f"/orders/{self.deaf_after}":
            self.deaf_after = ""
            self._stop_listening()
        return goes_on

    def _answer(self, stream: Any, request: Request) -> bool:
        self.shop.act(request)
        return super()._answer(stream, request)


def said(status: int, document: Any) -> Reply:
    """JSON."""
    return Reply(status, body=json.dumps(document).encode())


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
