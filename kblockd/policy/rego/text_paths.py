"""Which paths certainly hold strings: by the schema of the input, or by a document of the bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from kblockd.policy.rego.affixes import IsText
from kblockd.policy.rego.shape import Shape

# At import: the child that lints may open no files by then.
_INPUT: Final = Shape(json.loads((files("kblockd.policy.rego") / "schemas" / "input.json").read_text("utf-8")))


def text_paths(data: Mapping[str, Any]) -> IsText:
    """For a bundle with these documents."""

    def is_text(path: tuple[str, ...]) -> bool:
        return _INPUT.is_text(path[1:]) if path[0] == "input" else _no_document(path[1:], data)

    return is_text


def _no_document(path: tuple[str, ...], data: Any) -> bool:
    """A string, or no document at all: rules are not indexed so."""
    for part in path:
        if not isinstance(data, Mapping):
            return False
        if part not in data:
            return True
        data = data[part]
    return isinstance(data, str)
