"""Decodes response bodies within a bound: a gzip bomb never expands beyond the remaining limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator


class BodyRefused(Exception):
    """The body cannot be decoded; ``code`` is an upper-case word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Plain:
    """No content coding."""

    def feed(self, data: bytes, limit: int) -> bytes:
        """At most ``limit`` + 1 bytes: the extra one shows that the limit is exceeded."""
        return data[: limit + 1]

    def finish(self) -> None:
        """Nothing to check."""


class Gzip:
    """RFC 1952, several members allowed, never more than ``limit`` + 1 bytes at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False

    def feed(self, data: bytes, limit: int) -> bytes:
        """Raises ``BodyRefused`` for data that is not gzip."""
        return b"".join(self._decompressed(data, limit + 1))

    def _decompressed(self, data: bytes, room: int) -> Iterator[bytes]:
        while data and room > 0:
            self._begun = True
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            try:
                part = self._member.decompress(data, room)
            except zlib.error as error:
                raise BodyRefused("CONTENT_ENCODING_BROKEN", f"the gzip body is broken: {error}") from None
            room -= len(part)
            data = self._member.unused_data or self._member.unconsumed_tail
            yield part

    def finish(self) -> None:
        """Raises ``BodyRefused`` when the last member is truncated."""
        if self._begun and not self._member.eof:
            raise BodyRefused("CONTENT_ENCODING_BROKEN", "the gzip body ends too early")


def decoder(content_encoding: str) -> Plain | Gzip:
    """The decoder for a Content-Encoding. We request identity and tolerate gzip; raises ``BodyRefused`` for others."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return Plain()
    if coding in ("gzip", "x-gzip"):
        return Gzip()
    raise BodyRefused("CONTENT_ENCODING_REFUSED", "a content coding that was not requested")
