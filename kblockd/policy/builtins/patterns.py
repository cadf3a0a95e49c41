"""Go's regular expressions and gobwas globs on RE2, as OPA has them.

The engine's own regular expressions are Unicode-aware (``\\w`` matches ``é``, OPA's does not) and its globs ignore a
``:`` delimiter (kblockd/policy/README.md#differences-from-opa). RE2 is linear in the text, so that no pattern can stall
an evaluation.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import re2

from kblockd.policy.builtins.texts import integer
from kblockd.policy.builtins.texts import text as _text

_REFERENCE: Final = re.compile(r"\$(?:(?P<dollar>\$)|(?P<bare>\w+)|\{(?P<braced>\w+)\})", re.ASCII)


@functools.lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """Raises ``ValueError`` for a pattern that RE2 (and so Go) does not take."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise ValueError(f"not a regular expression: {error}") from None


def is_valid(pattern: Any) -> bool:
    """``regex.is_valid``."""
    try:
        compiled(_text(pattern))
    except (TypeError, ValueError):
        return False
    return True


def match(pattern: str, value: str) -> bool:
    """``regex.match``: anywhere in the text."""
    return compiled(_text(pattern)).search(_text(value)) is not None


def _matches(pattern: str, value: str) -> Iterator[Any]:
    """Go's FindAll: without overlap, and no empty match that abuts the match before it."""
    expression = compiled(_text(pattern))
    position, previous_end, end = 0, -1, len(_text(value))
    while position <= end:
        found = expression.search(value, position)
        if found is None:
            return
        start, stop = found.span()
        if stop > start:
            position = stop
        else:
            position = stop + 1
            if start == previous_end:
                continue
        previous_end = stop
        yield found


def _limited(matches: Iterator[Any], number: int) -> list[Any]:
    found = list(matches)
    return found if number < 0 else found[:number]


def find_n(pattern: str, value: str, number: int) -> list[str]:
    """``regex.find_n``; -1 is all."""
    return [found.group() for found in _limited(_matches(pattern, value), integer(number))]


def find_all_submatch_n(pattern: str, value: str, number: int) -> list[list[str]]:
    """``regex.find_all_string_submatch_n``; a group that took no part is the empty string."""
    found = _limited(_matches(pattern, value), integer(number))
    return [[row.group(), *(group or "" for group in row.groups())] for row in found]


def replace(value: str, pattern: str, template: str) -> str:
    """``regex.replace``: Go's ReplaceAllString, ``$1`` and ``${name}`` in the template."""
    parts, position, wanted = [], 0, _text(template)
    for found in _matches(pattern, value):
        parts.append(value[position : found.start()])
        parts.append(_expand(wanted, found))
        position = found.end()
    return "".join(parts) + value[position:]


def _expand(template: str, found: Any) -> str:
    def group(reference: re.Match[str]) -> str:
        if reference["dollar"]:
            return "$"
        name = reference["bare"] or reference["braced"]
        key = int(name) if name.isascii() and name.isdigit() else name
        try:
            return found.group(key) or ""
        except (IndexError, KeyError):
            return ""

    return _REFERENCE.sub(group, template)


def split(pattern: str, value: str) -> list[str]:
    """``regex.split``: Go's Split(s, -1)."""
    compiled(_text(pattern))
    if pattern and not _text(value):
        return [""]
    parts: list[str] = []
    start = stop = 0
    for found in _matches(pattern, value):
        if found.end() == 0:
            continue
        stop = found.start()
        parts.append(value[start:stop])
        start = found.end()
    if stop != len(value):
        parts.append(value[start:])
    return parts


def template_match(template: str, value: str, opening: str, closing: str) -> bool:
    """``regex.template_match``: expressions between delimiters, everything else literal."""
    _text(value)
    if len(_text(opening).encode()) != 1 or len(_text(closing).encode()) != 1:
        raise ValueError("a delimiter must be one character of ASCII")
    parts, depth, start = ["(?s)^"], 0, 0
    for position, character in enumerate(template):
        if character == opening:
            if depth == 0:
                parts.append(re2.escape(template[start:position]))
                start = position + 1
            depth += 1
        elif character == closing:
            depth -= 1
            if depth == 0:
                parts.append(f"(?:{template[start:position]})")
                start = position + 1
            if depth < 0:
                raise ValueError("unbalanced delimiters")
    if depth:
        raise ValueError("unbalanced delimiters")
    return match("".join([*parts, re2.escape(template[start:]), "$"]), value)


def glob_match(pattern: str, delimiters: list[str] | None, value: str) -> bool:
    """``glob.match``: null means no delimiters, an empty array the dot (OPA's reference)."""
    if delimiters is not None and not isinstance(delimiters, list):
        raise TypeError("the delimiters of a glob must be an array or null")
    separators = [] if delimiters is None else delimiters or ["."]
    if any(len(_text(separator)) != 1 for separator in separators):
        raise ValueError("a delimiter of a glob must be one character")
    return compiled(_glob(_text(pattern), "".join(sorted(separators)))).search(_text(value)) is not None


@functools.lru_cache(maxsize=512)
def _glob(pattern: str, separators: str) -> str:
    reader = _GlobReader(pattern, f"[^{_class(separators)}]" if separators else ".")
    return f"(?s)^(?:{reader.sequence(nested=False)})$"


def _class(characters: str) -> str:
    """Inside brackets; every character by its code point, so that none has a meaning."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in characters)


class _GlobReader:
    """gobwas/glob: ``*``, ``**``, ``?``, ``[abc]``, ``[!a-z]``, ``{a,b}`` and backslash."""

    def __init__(self, pattern: str, single: str) -> None:
        self._pattern = pattern
        self._single = single
        self._at = 0
        self._simple: dict[str, Callable[[], str]] = {
            "*": self._star,
            "?": lambda: single,
            "[": self._list,
            "{": self._alternatives,
            "\\": self._escaped,
        }

    def sequence(self, *, nested: bool) -> str:
        """Until the end, or inside braces until ``,`` or ``}``."""
        parts: list[str] = []
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            if nested and character in ",}":
                return "".join(parts)
            self._at += 1
            read = self._simple.get(character)
            parts.append(read() if read else re2.escape(character))
        if nested:
            raise ValueError("a brace of a glob is not closed")
        return "".join(parts)

    def _star(self) -> str:
        stars = 1
        while self._pattern[self._at : self._at + 1] == "*":
            self._at += 1
            stars += 1
        return ".*" if stars > 1 else f"{self._single}*"

    def _escaped(self) -> str:
        if self._at >= len(self._pattern):
            raise ValueError("a glob ends in a backslash")
        self._at += 1
        return str(re2.escape(self._pattern[self._at - 1]))

    def _list(self) -> str:
        end = self._pattern.find("]", self._at)
        body = self._pattern[self._at : end]
        negated = body.startswith("!")
        body = body.removeprefix("!")
        if end < 0 or not body or any(character in body for character in "[\\"):
            raise ValueError("a bracket of a glob is empty, not closed, or holds an escape")
        self._at = end + 1
        if len(body) == 3 and body[1] == "-":
            if body[0] > body[2]:
                raise ValueError("a range of a glob is upside down")
            inner = f"{_class(body[0])}-{_class(body[2])}"
        elif "-" in body:
            raise ValueError("a bracket of a glob is either one range or a list without a hyphen")
        else:
            inner = _class(body)
        return f"[{'^' if negated else ''}{inner}]"

    def _alternatives(self) -> str:
        choices = [self.sequence(nested=True)]
        while self._pattern[self._at] == ",":
            self._at += 1
            choices.append(self.sequence(nested=True))
        self._at += 1
        return f"(?:{'|'.join(choices)})"
