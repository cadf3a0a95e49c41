"""From a plain document to a frozen model, with every fault in words that an operator can act on.

Used for contracts here and for the daemon's configuration and upstreams by ``kblockd.config``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kblockd.domain.contract.fault import Fault, InvalidContract, Path
from kblockd.domain.contract.model import STORED, ActionContract
from kblockd.domain.contract.words import ALWAYS, NOT_SUPPORTED_YET

Model = TypeVar("Model", bound=BaseModel)

_TYPES: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "none_required": "null",
}
_UNIT: Final = re.compile(r"_(seconds|milliseconds|ms|minutes|hours|bytes|kib|mib|gib|kb|mb|gb|ratio)$")


def parse(document: Any) -> ActionContract:
    """A checked contract; raises ``InvalidContract`` with every fault and its path."""
    return parse_model(ActionContract, document)


def parse_stored(document: Any) -> ActionContract:
    """A contract that a ledger holds, which an older version may have checked; raises ``InvalidContract``.

    What that version accepted and this one refuses to begin with is read in its safe meaning. Its document, and with
    it the digest that everything binds, stays the one that was stored: keys that came later do not change it.
    """
    try:
        contract = ActionContract.model_validate(document, strict=True, context={STORED: True})
    except ValidationError as error:
        raise InvalidContract(list(_faults(ActionContract, document, error))) from None
    contract.__dict__["document"] = document  # where the cached property keeps it
    return contract


def parse_model(model: type[Model], document: Any, *, as_json: bool = False) -> Model:
    """A frozen model of a plain document (dicts, lists, scalars), strictly typed; raises ``InvalidContract``.

    ``as_json``: for models with paths, networks and the like, which a document can only hold as text.
    """
    try:
        if as_json:
            return model.model_validate_json(json.dumps(document), strict=True)
        return model.model_validate(document, strict=True)
    except ValidationError as error:
        raise InvalidContract(list(_faults(model, document, error))) from None


def _faults(model: type[BaseModel], document: Any, error: ValidationError) -> Iterator[Fault]:
    details = error.errors(include_url=False)
    unknown = [d for d in details if d["type"] == "extra_forbidden"]
    for detail in details:
        context: Mapping[str, Any] = detail.get("ctx") or {}
        if "faults" in context:
            yield from (Fault((*_path(detail, document), *f.path), f.message, f.next_step) for f in context["faults"])
        else:
            yield _fault(model, document, detail, unknown)


def _fault(model: type[BaseModel], document: Any, detail: ErrorDetails, unknown: list[ErrorDetails]) -> Fault:
    path = _path(detail, document)
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = sorted(_known_keys(model, path[:-1]))
        return Fault(path, "unknown key", _unknown_step(str(path[-1]), known))
    if kind == "missing":
        sibling = next((d for d in unknown if d["loc"][:-1] == detail["loc"][:-1]), None)
        wrote = f"; {str(sibling['loc'][-1])!r} is no key" if sibling else ""
        return Fault(path, "missing" + wrote, f"write {path[-1]}")
    if kind == NOT_SUPPORTED_YET:
        return Fault(path, f"{_shown(detail)} is not supported yet", "remove it, or set what this version supports")
    if kind == ALWAYS:
        message, _, step = detail["msg"].partition("; ")
        return Fault(path, message, step)
    return Fault(path, _said(detail), _value_step(str(path[-1]) if path else ""))


def _path(detail: ErrorDetails, document: Any) -> Path:
    """The part of pydantic's location that exists in the document: tags of unions and validators drop out."""
    path: list[str | int] = []
    node = document
    last = detail["loc"][-1:] if detail["type"] in ("missing", "extra_forbidden") else ()
    for part in detail["loc"][: len(detail["loc"]) - len(last)]:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(part)
    return (*path, *last)


def _known_keys(model: type[BaseModel], path: Path) -> set[str]:
    """The keys of the model at ``path``; empty where the place has none of its own."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        field = next((f for n, f in current.model_fields.items() if (f.alias or n) == part), None) if current else None
        current = _model_in(field.annotation) if field else None
    return {field.alias or name for name, field in current.model_fields.items()} if current else set()


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    arguments = getattr(annotation, "__args__", ())
    return next(filter(None, map(_model_in, arguments)), None)


def _unknown_step(key: str, known: list[str]) -> str:
    stem = _UNIT.sub("", key)
    same = [name for name in known if _UNIT.sub("", name) == stem]
    close = same or difflib.get_close_matches(key, known, 1)
    if same and same[0] != key:
        return f"write {same[0]}, in the unit of its name"
    return f"did you mean {close[0]}?" if close else f"remove it; known here: {', '.join(known) or 'nothing'}"


def _said(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind in _TYPES:
        return f"must be {_TYPES[kind]}, not {_shown(detail)}"
    if kind == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    if kind == "string_pattern_mismatch":
        return f"must match {detail['ctx']['pattern']}, not {_shown(detail)}"
    message = detail["msg"].removeprefix("Input should ").removeprefix("String should ")
    return f"must {message}, not {_shown(detail)}" if message != detail["msg"] else f"{message} ({_shown(detail)})"


def _shown(detail: ErrorDetails) -> str:
    value = detail["input"]
    kinds: dict[type, Callable[[Any], str]] = {
        dict: lambda _: "a mapping",
        list: lambda _: "a list",
        tuple: lambda _: "a list",
        bool: lambda v: "true" if v else "false",
        type(None): lambda _: "null",
        str: lambda v: f"the text {v[:64]!r}",
    }
    return kinds.get(type(value), lambda v: str(v)[:64])(value)


def _value_step(key: str) -> str:
    unit = _UNIT.search(key)
    return f"write a number of {unit[1]}, without a unit" if unit and unit[1] != "ratio" else "correct the value"
