"""Child side: what the worker answers to load, check and evaluate."""

from __future__ import annotations

import json
from typing import Any

import regorus

from kblockd.policy import checks
from kblockd.policy.modules import Modules, evaluate, first_line, load
from kblockd.policy.replacements import DecisionTime


class Answers:
    """One engine, bound to the thread that made it."""

    def __init__(self) -> None:
        self._time = DecisionTime()
        self._engine: Any = regorus.Engine()

    def answer(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        """Never raises: what goes wrong inside is an ``error`` for the parent."""
        try:
            return self._answer(header, body)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # pyo3's PanicException is a BaseException
            return {"error": first_line(error)}

    def _answer(self, header: dict[str, Any], body: bytes) -> dict[str, Any]:
        match header.get("op"):
            case "evaluate":
                return evaluate(self._engine, self._time, header["query"], body)
            case "load":
                self._engine = load(Modules.from_json(json.loads(body)).without_tests(), self._time)
                checks.warm(self._engine, self._time)
                return {"ok": True}
            case "check":
                faults, tests = checks.check(Modules.from_json(json.loads(body)), self._time)
                return {"faults": [fault.to_json() for fault in faults], "tests": tests}
            case other:
                return {"error": f"unknown operation {other!r}"}
