"""Child side: the operations of a worker."""

from __future__ import annotations

import json
from typing import Any

import regorus

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.bundles import documents
from kblockd.policy.embedded import acceptance
from kblockd.policy.embedded.modules import Modules, bare_error, evaluate, load


class Answers:
    """``evaluate``, ``load``, ``check`` and ``documents``. One engine, bound to the thread that made it."""

    def __init__(self) -> None:
        self._time = DecisionTime()
        self._engine: Any = regorus.Engine()

    def answer(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """An error of a policy or an input becomes an ``error`` for the parent.

        Anything else (out of memory, a panic of the engine) ends the process: its state cannot be trusted any more.
        """
        try:
            return self._answer(header, body)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            return {"error": bare_error(error)}

    def _answer(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        match header.get("op"):
            case "evaluate":
                return evaluate(self._engine, self._time, header["query"], body)
            case "load":
                self._engine = load(Modules.from_json(json.loads(body)).without_tests(), self._time)
                acceptance.warm(self._engine, self._time)
                return {"ok": True}
            case "check":
                modules, server = Modules.from_json(json.loads(body)), header.get("server") is True
                faults, tests = acceptance.check(modules, self._time, server=server)
                return {"faults": [fault.to_json() for fault in faults], "tests": tests}
            case "documents":
                return documents.answered(body)
            case other:
                return {"error": f"unknown operation {other!r}"}
