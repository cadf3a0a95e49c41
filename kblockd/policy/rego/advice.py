"""The next step for an error message of either engine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kblockd.policy.builtins import allowed

SYNTAX: Final = "correct it here or in the rule before: a bracket, comma or quote too many or missing, a word misspelt"
FAILING: Final = "a condition of this test does not hold"
RULE: Final = "correct the rule"
RULE_OR_TEST: Final = "correct the rule or the test"

_STEPS: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(r"^use of undefined variable|^var \S+ is unsafe"): (
        "correct its name, or give it a value first (`name := ...`, `some name in ...`)"
    ),
    re.compile(r"^undefined function data\."): "correct its name, or add the file that defines it",
    re.compile(r"^undefined function "): "correct its name, or import it: neither OPA nor the bundle has it",
    re.compile(r"is recursive|recursion detected"): "let no rule depend on itself",
    re.compile(r"unexpected keyword `import`|unexpected import"): (
        "move the import above the first rule: the embedded engine takes imports there only"
    ),
    re.compile(r"`if` keyword is required"): (
        "this is Rego of OPA 0.x: a set of answers is `deny contains msg if { ... }` today, anything else is"
        " `name if { ... }`; `opa fmt --v0-v1 --write` rewrites a file"
    ),
    re.compile(r"`contains` keyword is required"): "write `name contains value if { ... }`",
    re.compile(r"keyword is required"): "write the word there",
    re.compile(r"[Mm]issing package declaration|^package expected"): "begin the file with its package",
    re.compile(r"nesting too deep"): "nest less",
    re.compile(r"exceeds maximum"): "split the file",
}


def next_step(message: str, otherwise: str = RULE) -> str:
    """For a message of either engine; ``otherwise`` where there is nothing better to say."""
    return next((step for pattern, step in _STEPS.items() if pattern.search(message)), otherwise)


def undefined_function(name: str, known: Iterable[str]) -> tuple[str, str]:
    """What is wrong with a call that the embedded engine cannot make, and the next step; ``known`` are those that it
    can."""
    near = difflib.get_close_matches(name, known, 1)
    correct = f"correct its name (did you mean {near[0]}?)" if near else "correct its name"
    if name.startswith("data."):
        return f"no file of the bundle defines the function {name}", f"{correct}, or add the file that defines it"
    if name.startswith(allowed.ONLY_OPA):
        message = f"{name} is not a function of the embedded engine; OPA has it"
        return message, "write it without; what only OPA has needs policy.engine opa"
    message = f"{name} is not a function of OPA, of the embedded engine or of the bundle"
    return message, f"{correct}, or import the rule that it stands for"
