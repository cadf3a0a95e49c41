"""The provider of refunds as a REST service; what goes wrong with its answers is its front's doing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.upstreams.messages import JSON, Reply, Request, said
from tests.upstreams.refunds import LONG, Refunds

EFFECT_KEY = "x-effect-key"
PROBLEM = "application/problem+json"
OPERATION = "op-7"


class RestApp:
    """POST acts (the order stands in the path or in the body), everything else reads; /openapi.json describes it."""

    def __init__(self) -> None:
        self.refunds = Refunds()
        self.description = "Pays money back."
        self.reverse = False

    def is_call(self, request: Request) -> bool:
        return request.method == "POST"

    def is_snapshot(self, request: Request) -> bool:
        return request.target.startswith("/orders/")

    def is_lookup(self, request: Request) -> bool:
        return request.target.startswith("/lookup")

    def act(self, request: Request) -> None:
        key = request.headers.get(EFFECT_KEY, "")
        self.refunds.add({**request.document, "order_id": _order(request)}, key)

    def answer(self, request: Request, note: str) -> Reply:
        if self.is_call(request):
            made = {"ok": True, "refund_id": self.refunds.last(_order(request)), "status": "succeeded", "note": note}
            return said(201, made, X_Request_Id="req-1")
        url = urlsplit(request.target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        return self.read(url.path, query)

    def read(self, path: str, query: Mapping[str, str]) -> Reply:
        """What has no effect."""
        if path == "/openapi.json":
            return said(200, self._document())
        if path.startswith("/orders/"):
            return said(200, self.refunds.order(path.removeprefix("/orders/")))
        if path == "/refunds":
            return said(200, self.refunds.listed(query["order_id"]))
        if path == "/lookup":
            return said(200, self.refunds.found(query["key"]))
        if path.startswith("/operations/"):
            return said(200, {"state": "done", "ok": True})
        return said(404, {"error": "no such path"})

    def say(self, word: str, request: Request, note: str = "") -> Reply:
        """What a provider may say instead of the good answer; KeyError for what this protocol cannot say."""
        return {
            "error": lambda: said(200, {"ok": False, "message": note or "the bank did not answer"}),
            "long error": lambda: said(500, {"message": LONG}),
            "refused": lambda: said(409, {"message": "the order cannot be refunded"}),
            "not run": lambda: problem(429, "later"),
            "still busy": lambda: problem(409, "busy"),
            "crash": lambda: said(500, {"message": note or "boom"}, X_Request_Id=note.partition(" | ")[0] or "req-1"),
            "wrong schema": lambda: said(200, {"refund": ["re_1"]}),
            "unstorable": lambda: Reply(200, dict(JSON), b'{"ok": true, "n": 9007199254740993}'),
            "accepted": lambda: said(202, {"ok": True, "operation": OPERATION}),
            "nameless": lambda: said(202, {"ok": True}),
            "nothing": lambda: Reply(204, {}),
        }[word]()

    def turn_keys(self) -> None:
        """The same definition, with its keys in another order."""
        self.reverse = True

    def change(self) -> None:
        """Another definition of the tool that acts."""
        self.description = "Pays money back, and tells everybody."

    def _document(self) -> dict[str, Any]:
        operation = {"summary": self.description, "operationId": "refund"}
        if self.reverse:
            operation = dict(reversed(operation.items()))
        return {"info": {"version": "7"}, "paths": {"/refunds": {"post": operation, "get": {"summary": "Lists."}}}}


def problem(status: int, code: str) -> Reply:
    """An error in the service's own shape."""
    return Reply(status, {"content-type": f"{PROBLEM}; charset=utf-8"}, json.dumps({"code": code}).encode())


def _order(request: Request) -> str:
    """In the path, ``/v1/orders/{order}/refunds``, or in the body."""
    if request.target.startswith("/v1/orders/"):
        return unquote(request.target.split("/")[3])
    return str(request.document.get("order_id", ""))
