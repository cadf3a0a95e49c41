"""The worker of these tests: the same loading, linting and replacements as the policy worker, for any query.

Frames of ``kblockd.policy.embedded.frames`` on descriptor 0. One reply for each case: ``refused`` (at load), ``error``
(at evaluation) or ``rows``, the bindings of every answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded import frames
from kblockd.policy.embedded.modules import Modules, load
from kblockd.policy.embedded.worker import confine
from kblockd.policy.rego.linter import lint

_PLAIN = re.compile(r"(x = )?data(\.[a-z_][\w]*|\[\"[^\"]+\"\])*( = x)?")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """What the embedded engine makes of one case."""
    time = DecisionTime()
    texts = {f"{number}.rego": text for number, text in enumerate(case["modules"])}
    if not _PLAIN.fullmatch(case["query"]):  # what is more than a question must pass the linter too
        texts["query.rego"] = f"package conformance_query\n\nanswered if {{\n{case['query']}\n}}\n"
    try:
        engine = load(Modules(texts, case["data"]), time)
        faults = lint(json.loads(engine.get_ast_as_json()), case["data"])
    except (RuntimeError, TypeError) as error:
        return {"refused": str(error)[:200]}
    if faults:
        return {"refused": str(faults[0])[:200]}
    try:
        if case["has_input"]:
            time.document = json.dumps(case["input"]).encode()
            engine.set_input_json(time.document.decode())
        found = json.loads(engine.eval_query_as_json(case["query"]))
    except (RuntimeError, ValueError) as error:
        return {"error": str(error)[:200]}
    return {"rows": [row.get("bindings", {}) for row in found.get("result", []) if defined(row)]}


def defined(row: dict[str, Any]) -> bool:
    """OPA leaves out what is false; here the expression shows it."""
    return all(expression["value"] is not False for expression in row["expressions"])


def main() -> None:
    """Until the stream ends."""
    import os

    confine(1024, os.getppid())
    while (payload := frames.read_blocking(0)) is not None:
        _, body = frames.unpack(payload)
        frames.write_blocking(0, frames.pack(answer(json.loads(body))))


if __name__ == "__main__":
    main()
