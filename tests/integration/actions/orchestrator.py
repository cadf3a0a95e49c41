"""What restarts services, over plain HTTP, as config/upstreams/orchestrator.yaml calls it."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.upstreams.messages import Reply, Request, said

KEY = "idempotency-key"


class Orchestrator:
    """An app of the misbehaving front: POST restarts, everything else reads. ``busy`` services have work going on;
    a restart of one in ``careless`` restarts its neighbour, too."""

    def __init__(self) -> None:
        self.restarts: list[tuple[str, str]] = []  # (service, key)
        self.busy: set[str] = set()
        self.careless: set[str] = set()

    def is_call(self, request: Request) -> bool:
        return request.method == "POST"

    def act(self, request: Request) -> None:
        self.restarts.append((_service(request.target), request.headers[KEY]))

    def answer(self, request: Request, note: str) -> Reply:
        if self.is_call(request):
            return said(201, {"operation_id": f"op-{len(self.restarts)}"})
        url = urlsplit(request.target)
        key = parse_qs(url.query).get("key", [""])[0]
        if url.path == "/restarts/lookup":
            return said(200, {"found": any(made == key for _, made in self.restarts)})
        service = _service(url.path)
        return said(200, self._restart(service, key) if url.path.endswith("/restarts") else self._state(service))

    def of(self, service: str) -> int:
        """How often a service was restarted."""
        return Counter(name for name, _ in self.restarts)[service]

    def _state(self, service: str) -> dict[str, Any]:
        return {
            "exists": True,
            "version": 1 + self.of(service),
            "application_version": "3.1.4",
            "instances": 3,
            "healthy_instances": 3,
            "operation_running": service in self.busy,
            "frozen_until": "",
        }

    def _restart(self, service: str, key: str) -> dict[str, Any]:
        made = self.restarts.count((service, key))
        return {
            "operation_state": "completed" if made else "unknown",
            "restarts": made,
            "instances": 3,
            "healthy_instances": 3,
            "application_version": "3.1.4",
            "other_changes": [service, "neighbour"] if service in self.careless else [service],
        }


def _service(path: str) -> str:
    return path.split("/")[2]
