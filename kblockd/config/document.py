"""YAML 1.2 to plain values, with the line and column of every key.

Accepts only mappings with text keys, lists and scalars of the core schema. Refuses constructs that make a file mean
something other than it appears to: duplicate keys, tags, anchors and aliases, merge keys, several documents, ``.inf``
and ``.nan``. A plain ``yes``, ``on`` or ``30s`` is text in YAML 1.2, so typed keys refuse it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamStartEvent,
)

from kblockd.config.fault import ConfigurationFault, Place
from kblockd.domain.contract.fault import Path as KeyPath
from kblockd.paths import Opened, Step, open_path

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Document:
    """The values of one file and the place of each key or list element; ``faults`` are those of the YAML itself.

    ``steps`` are the folders and links on the way to the file, and the file, as they were when it was read.
    """

    file: Path
    value: Any
    places: dict[KeyPath, Place] = field(repr=False)
    faults: tuple[ConfigurationFault, ...] = ()
    steps: tuple[Step, ...] = field(default=(), repr=False)

    def place(self, path: KeyPath) -> Place:
        """The place of the key, or of the nearest mapping above a missing key."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(self.file, 1, 1))

    def fault(self, path: KeyPath, message: str, next_step: str) -> ConfigurationFault:
        """A fault at a key of this file."""
        return ConfigurationFault(self.place(path), path, message, next_step)


class _Stop(Exception):
    """The rest of the document cannot be parsed."""


def read(file: Path, opening: Callable[[], Opened] | None = None) -> Document:
    """Reads one file; errors of the content or the system become faults and are never raised.

    ``opening`` replaces ``open_path`` of the path, for a file beneath an open folder. Blocks.
    """
    try:
        with opening() if opening else open_path(file) as opened:
            text = _text(opened)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _broken(file, Place(file, 1, 1), f"cannot be read: {why}", "check the path, its mode and its encoding")
    return replace(parse(file, text), steps=opened.steps)


def _text(opened: Opened) -> str:
    if not opened.is_file:
        raise ValueError("not a regular file")
    data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"longer than {MAX_BYTES} bytes")
    return data.decode("utf-8")


def parse(file: Path, text: str) -> Document:
    """The document in ``text``; ``file`` is only used in places."""
    composer = _Composer(file)
    try:
        value = composer.document(iter(YAML(typ="safe", pure=True).parse(text)))
    except _Stop:
        value = None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)
        return _broken(file, place, f"invalid YAML: {error.problem or error.context}", "correct the syntax")
    except (YAMLError, RecursionError, ValueError) as error:
        return _broken(file, Place(file, 1, 1), f"invalid YAML: {str(error)[:200]}", "correct the syntax")
    return Document(file, value, composer.places, tuple(composer.faults))


def _broken(file: Path, place: Place, message: str, next_step: str) -> Document:
    return Document(file, None, {}, (ConfigurationFault(place, (), message, next_step),))


class _Composer:
    """Builds values from parser events and records places and faults on the way."""

    def __init__(self, file: Path) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.faults: list[ConfigurationFault] = []
        self._file = file

    def document(self, events: Iterator[Event]) -> Any:
        event = next(events)
        if isinstance(event, StreamStartEvent):
            event = next(events)
        if not isinstance(event, DocumentStartEvent):
            self._stop(event, (), "is empty", "write a mapping")
        if event.version not in (None, (1, 2), "1.2"):
            self._stop(event, (), "requires a YAML version other than 1.2", "remove the %YAML line")
        first = next(events)
        self.places[()] = self._place(first)
        value = self._value(first, events, ())
        end = next(events)
        if not isinstance(end, DocumentEndEvent) or isinstance(next(events), DocumentStartEvent):
            self._stop(end, (), "holds more than one document", "keep one document per file")
        if not isinstance(value, dict):
            self._stop(first, (), "is not a mapping", "write keys and values")
        return value

    def _value(self, event: Event, events: Iterator[Event], path: KeyPath) -> Any:
        if len(path) > MAX_DEPTH:
            self._stop(event, path, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            self._stop(event, path, "anchors and aliases are not supported", "write the value out")
        if (tag := getattr(event, "tag", None)) is not None:
            self._fault(event, path, f"the tag {tag} is not supported", "write the value without a tag")
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, SequenceStartEvent):
            return self._list(events, path)
        return self._mapping(events, path)

    def _list(self, events: Iterator[Event], path: KeyPath) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            at = (*path, len(items))
            self.places[at] = self._place(event)
            items.append(self._value(event, events, at))
        return items

    def _mapping(self, events: Iterator[Event], path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._key(event, path)
            at = (*path, key)
            if key in mapping:
                first = self.places[at]
                message = f"duplicate key, also in line {first.line}"
                self._fault(event, at, message, "keep one of them")
            else:
                self.places[at] = self._place(event)
            mapping[key] = self._value(next(events), events, at)
        return mapping

    def _key(self, event: Event, path: KeyPath) -> str:
        if not isinstance(event, ScalarEvent) or event.tag is not None or event.anchor is not None:
            self._stop(event, path, "a key must be plain text", "write a name")
        if event.style is None and (event.value == "<<" or not isinstance(_plain(event.value), str)):
            self._fault(event, (*path, event.value), "is not text", "put the key in quotes if it is intended")
        return str(event.value)

    def _scalar(self, event: ScalarEvent, path: KeyPath) -> Any:
        if event.style is not None:
            return event.value
        if _SPECIAL_FLOAT.fullmatch(event.value):
            self._fault(event, path, f"{event.value} is not a finite number", "write a number")
        value = _plain(event.value)
        if isinstance(value, float) and not math.isfinite(value):
            self._fault(event, path, f"{event.value} is out of range for a double", "write a smaller number")
        return value

    def _place(self, event: Event) -> Place:
        mark = event.start_mark
        return Place(self._file, mark.line + 1, mark.column + 1)

    def _fault(self, event: Event, path: KeyPath, message: str, next_step: str) -> None:
        self.faults.append(ConfigurationFault(self._place(event), path, message, next_step))

    def _stop(self, event: Event, path: KeyPath, message: str, next_step: str) -> NoReturn:
        self._fault(event, path, message, next_step)
        raise _Stop


def _plain(text: str) -> Any:
    """The value of a plain scalar by the core schema of YAML 1.2 (section 10.3)."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
