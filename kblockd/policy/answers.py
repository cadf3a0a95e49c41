"""Child side: what the worker answers to documents, load, evaluate, check, review, test and explain."""

from __future__ import annotations

import json
from typing import Any

import regorus

from kblockd.policy import checks, documents, explaining, trying
from kblockd.policy.modules import Modules, bare_error, evaluate, load
from kblockd.policy.replacements import DecisionTime
from kblockd.policy.review import review


class Answers:
    """One engine, bound to the thread that made it."""

    def __init__(self) -> None:
        self._time = DecisionTime()
        self._engine: Any = regorus.Engine()

    def answer(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """What goes wrong with a policy or an input is an ``error`` for the parent.

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
                checks.warm(self._engine, self._time)
                return {"ok": True}
            case "check":
                faults, tests = checks.check(
                    Modules.from_json(json.loads(body)), self._time, server=header.get("server") is True
                )
                return {"faults": [fault.to_json() for fault in faults], "tests": tests}
            case "explain":
                return explaining.explain(Modules.from_json(json.loads(body)), self._time, header)
            case "review":
                modules, server = Modules.from_json(json.loads(body)), header.get("server") is True
                found = review(modules, self._time, header["schema"], server=server)
                return {"findings": [finding.to_json() for finding in found]}
            case "test":
                return trying.test(Modules.from_json(json.loads(body)), self._time, header["only"])
            case "documents":
                return documents.answered(body)
            case other:
                return {"error": f"unknown operation {other!r}"}
