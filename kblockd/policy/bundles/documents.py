"""The documents of a bundle: parsed strictly, placed in the tree and digested as OPA does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

import orjson
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from kblockd.domain.canonical import MAX_DEPTH, NotCanonical, canonical, count, parse
from kblockd.policy.bundles.files import MANIFEST, MAX_BYTES, SIGNATURES, is_data
from kblockd.policy.faults import BundleRefused, refusal

MAX_VALUES: Final = 1 << 18
"""Of all documents of a bundle together."""

MAX_YAML: Final = 128 << 10
"""Bytes of one YAML file: the parser takes ten microseconds for each, and reads before any signature is believed."""

_SEPARATORS: Final = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})


class _Literal(str):
    """A number as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Documents:
    """A bundle's JSON and YAML files.

    ``data`` is the base document, ``manifest`` and ``signatures`` are None where there is no such file, ``digests`` are
    those that a signature would list, empty for a bundle without one.
    """

    data: Mapping[str, Any]
    manifest: Mapping[str, Any] | None
    signatures: Mapping[str, Any] | None
    digests: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """For the frame from child to parent."""
        return asdict(self)


Parse = Callable[[Mapping[str, bytes]], Documents]
"""``parsed``, in this process or another; takes all files of a bundle, raises ``BundleRefused``."""


def is_document(name: str) -> bool:
    """Whether ``parsed`` reads it."""
    return is_data(name) or name in (MANIFEST, SIGNATURES)


def is_signed(files: Mapping[str, bytes]) -> bool:
    """Whether the bundle has a signature file."""
    return SIGNATURES in files


def parsed(files: Mapping[str, bytes], *, signed: bool | None = None) -> Documents:
    """Of the files of a bundle, in this process: linear and bounded, but a parser of YAML is slow. Raises
    ``BundleRefused`` naming the file. ``signed``: whether to compute digests, if not known from the files."""
    values: dict[str, Any] = {}
    left = MAX_VALUES
    for name in sorted(filter(is_document, files)):
        top = object if is_data(name) and "/" in name else dict
        values[name] = read(name, files[name], top=top)
        left -= count(values[name], max_values=MAX_VALUES)
        if left < 0:
            raise refusal(name, f"the documents of the bundle hold more than {MAX_VALUES} values", "keep less data")
    signed = is_signed(files) if signed is None else signed
    listed = [name for name in values if name != SIGNATURES] if signed else []
    # Before the documents are merged, which puts those of a subfolder into the one above it.
    digests = {name: _sha256(_canonical(files[name], values[name])) for name in listed}
    data = _merged({name: value for name, value in values.items() if is_data(name)})
    return Documents(data, values.get(MANIFEST), values.get(SIGNATURES), digests)


def asked(texts: Mapping[str, str], *, signed: bool) -> bytes:
    """The body of the frame that asks a child to parse them."""
    return orjson.dumps({"documents": texts, "signed": signed})


def answered(body: bytes) -> dict[str, Any]:
    """In the child: ``Documents``, or ``faults``."""
    row = orjson.loads(body)
    files = {name: text.encode() for name, text in row["documents"].items()}
    try:
        return parsed(files, signed=row["signed"]).to_json()
    except BundleRefused as refused:
        return {"faults": [fault.to_json() for fault in refused.faults]}


def read(name: str, content: bytes, *, top: type = dict) -> Any:
    """The strict value of a JSON or YAML file; raises ``BundleRefused``. ``top``: the type that it must have."""
    text = content
    try:
        if not name.endswith(("json", MANIFEST)):
            text = _yaml(content)
        return parse(text, max_bytes=MAX_BYTES, max_values=MAX_VALUES, top=top)
    except (NotCanonical, YAMLError, TypeError, ValueError, RecursionError) as error:
        raise refusal(name, _reason(error), "correct the document") from None


def _reason(error: Exception) -> str:
    """Without the source line, which YAML's own message quotes: it may hold a secret by mistake."""
    if not isinstance(error, MarkedYAMLError):
        return " ".join(str(error).split())[:500]
    mark = error.problem_mark or error.context_mark
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return ("a duplicate key" if isinstance(error, DuplicateKeyError) else f"invalid YAML: {error.problem}") + place


def digest(name: str, content: bytes) -> str:
    """SHA-256 as a signature of OPA holds it: of a document over its values, keys in order, without blanks; of any
    other file over its bytes. Raises ``BundleRefused`` for a document that cannot be read."""
    if name.rpartition("/")[2] == MANIFEST or is_data(name):
        content = _canonical(content, read(name, content, top=object))
    return _sha256(content)


def _canonical(content: bytes, value: Any) -> bytes:
    return _encoded(_written(content, value)).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _merged(values: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for name, value in values.items():
        for key in reversed(name.split("/")[:-1]):
            value = {key: value}
        if at := _merge(whole, value):
            raise refusal(name, f"{at[:200]} is also in another document", "keep one of them")
    return whole


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> str:
    """Merges objects; returns the path of the first clash of other values, "" without one."""
    for key, value in more.items():
        if key not in into:
            into[key] = value
        elif not (isinstance(into[key], dict) and isinstance(value, dict)):
            return key
        elif below := _merge(into[key], value):
            return f"{key}/{below}"
    return ""


@lru_cache(maxsize=32)
def _yaml(content: bytes) -> bytes:
    """As JSON, so that YAML data meet the same strictness; dates and other tags are refused by the encoder. Aliases,
    a few of which stand for gigabytes, and depth, which costs the parser its square, are refused before anything is
    built. Cached, because a bundle is read every second and changes once a month."""
    if len(content) > MAX_YAML:
        raise ValueError(f"more than {MAX_YAML} bytes of YAML; write it as JSON")
    text = content.decode()
    _check_events(text)
    return json.dumps(YAML(typ="safe", pure=True).load(text), allow_nan=False).encode()


def _check_events(text: str) -> None:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, AliasEvent):
            raise ValueError("aliases are not supported")


def _written(content: bytes, value: Any) -> Any:
    """The value with its numbers as written: OPA keeps them so in JSON, but parses those of YAML."""
    try:
        return json.loads(content, parse_int=_Literal, parse_float=_Literal, parse_constant=_constant)
    except ValueError:
        return value


def _constant(literal: str) -> NoReturn:
    raise ValueError(literal)


def _encoded(value: Any) -> str:
    if isinstance(value, _Literal):
        return value
    if isinstance(value, dict):
        rows = (f"{_encoded(key)}:{_encoded(value[key])}" for key in sorted(value))
        return "{" + ",".join(rows) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_encoded, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).translate(_SEPARATORS)
    return canonical(value).decode()
