"""Child side: modules and data into an engine, one query out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import regorus

from kblockd.policy.builtins.replacements import DecisionTime, install
from kblockd.policy.faults import BundleFault
from kblockd.policy.rego import advice

_PLACE: Final = re.compile(r"^--> (?P<file>.+):(?P<line>\d+):(?P<column>\d+)$", re.MULTILINE)
_QUERY_FILE: Final = "<query.rego>"
_BUILTIN: Final = re.compile(r"(?:extension '|`)([a-z0-9_.]+)['`] ")
_WORDS: Final = re.compile(r"[A-Za-z ]{1,80}")
_NO_RULE: Final = "not a valid rule path"


@dataclass(frozen=True, slots=True)
class Modules:
    """The text of every module by its path, and the base document."""

    texts: Mapping[str, str]
    data: Mapping[str, Any]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Modules:
        """From the body of a frame."""
        return cls(row["modules"], row["data"])

    def without_tests(self) -> Modules:
        """Test modules are never loaded into a deciding engine."""
        texts = {path: text for path, text in self.texts.items() if not path.endswith("_test.rego")}
        return Modules(texts, self.data)


def load(modules: Modules, time: DecisionTime) -> Any:
    """A fresh engine (``add_policy`` never replaces a module); raises ``RuntimeError`` with a place in its text."""
    engine = regorus.Engine()
    engine.set_gather_prints(True)
    install(engine, time)
    for path, text in modules.texts.items():
        engine.add_policy(path, text)
    engine.add_data_json(json.dumps(modules.data))
    return engine


def evaluate(engine: Any, time: DecisionTime, query: str, document: bytes, *, quoting: bool = False) -> dict[str, Any]:
    """``{"value": ...}``, ``{"undefined": true}`` or ``{"error": ..., "rule": true}``: by presence, never by truth.

    What the engine raises here is an error of a rule over this input (AGT-08): out of memory, time or stack ends the
    process instead.
    ``quoting``: the error may quote values, because they are our own samples.
    """
    time.document = document
    try:
        engine.set_input_json(document.decode())
        return _answer(engine, query)
    except RuntimeError as error:
        return {"error": fault_of(error, "").message if quoting else bare_error(error), "rule": True}
    finally:
        time.document = b""


def _answer(engine: Any, query: str) -> dict[str, Any]:
    """Evaluates it as a rule if that is unambiguous, else as a query, which first walks every rule of every module.

    Alone, ``eval_rule_as_json`` cannot tell undefined from a text that says so, and refuses a path without a rule.
    """
    try:
        text = engine.eval_rule_as_json(query)
    except RuntimeError as error:
        if not str(error).startswith(_NO_RULE):
            raise
        text = ""
    if text.startswith(("{", "true")):
        return {"value": json.loads(text)}
    rows = json.loads(engine.eval_query_as_json(query)).get("result", [])
    if not rows:
        return {"undefined": True}
    if len(rows) != 1 or len(rows[0]["expressions"]) != 1:
        return {"error": "more than one answer to one question"}
    return {"value": rows[0]["expressions"][0]["value"]}


def bare_error(error: BaseException) -> str:
    """The place of an error and which builtin raised it, without values: those may come from the input.

    The engine quotes operands in its messages (``Got `...` instead``), so only words that it says by itself pass.
    """
    fault = fault_of(error, "")
    builtin = _BUILTIN.match(fault.message)
    if builtin:
        what = f"{builtin[1]} raised an error"
    else:
        what = fault.message if _WORDS.fullmatch(fault.message) else "the rule raised an error"
    return f"{fault.file}:{fault.line}:{fault.column}: {what}" if fault.line else what


def fault_of(error: BaseException, file: str, otherwise: str = advice.RULE) -> BundleFault:
    """The fault that an engine's error text names; ``otherwise`` is the next step where no better one is known."""
    text = str(error).split("\n\nStack backtrace", 1)[0]
    _, marker, tail = text.partition("error: ")
    message = " ".join((tail if marker else text).split())[:500] or type(error).__name__
    place = _PLACE.search(text)
    step = advice.next_step(message, otherwise)
    if place is None or place["file"] == _QUERY_FILE:
        return BundleFault(file, 0, 0, message, step)
    return BundleFault(place["file"], int(place["line"]), int(place["column"]), message, step)
