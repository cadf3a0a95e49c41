"""Parses the documents of a bundle in a process that is killed if it takes too long (LOC-06).

Documents are parsed before any signature is verified. Bytes, files, values and levels are bounded; time is bounded
here, so that a document on which a parser is slow cannot block the next, good bundle.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kblockd.policy.bundles import documents
from kblockd.policy.bundles.documents import Documents
from kblockd.policy.embedded import frames
from kblockd.policy.embedded.child import start
from kblockd.policy.faults import BundleFault, BundleRefused, refusal

INLINE_BYTES: Final = 4 << 10
"""Of all documents together; up to this size they are parsed inline, as a process would cost more."""

REFUSED_LOOKS: Final = 30
"""For how many polls a refusal for lack of time or memory is cached: the cause may have been transient."""

MAX_REPLY: Final = 32 << 20
_STEP: Final = "nest less, write YAML as JSON, or keep less data"


@dataclass(slots=True)
class KillableReader:
    """A ``documents.Parse`` for the daemon, which polls every second: the result for the same bytes is cached.

    ``memory_mib`` is the address space of the process, ``seconds`` its time.
    """

    memory_mib: int
    seconds: float = 10.0
    _mark: str = field(default="", init=False)
    _found: Documents | BundleRefused | None = field(default=None, init=False)
    _looks: int = field(default=0, init=False)

    def __call__(self, files: Mapping[str, bytes]) -> Documents:
        """Raises ``BundleRefused``. Blocks for ``seconds`` at most."""
        texts = {name: _text(name, content) for name, content in sorted(files.items()) if documents.is_document(name)}
        if sum(map(len, texts.values())) <= INLINE_BYTES:
            return documents.parsed(files)
        body = documents.asked(texts, signed=documents.is_signed(files))
        mark = hashlib.sha256(body).hexdigest()
        self._looks -= 1
        if mark != self._mark or self._found is None or self._looks == 0:
            self._mark, self._found, self._looks = mark, None, 0
            self._found = self._read(body)
        if isinstance(self._found, BundleRefused):
            raise BundleRefused(self._found.faults)
        return self._found

    def _read(self, body: bytes) -> Documents | BundleRefused:
        """A result that may be cached; raises ``BundleRefused`` for a transient failure."""
        self._looks = REFUSED_LOOKS
        try:
            reply = _reply(body, self.memory_mib, self.seconds)
        except TimeoutError:
            return refusal("data", f"reading the documents took longer than {self.seconds:g} s", _STEP)
        except OSError as error:
            fault = BundleFault("data", 0, 0, f"no process for reading the documents ({error.strerror})", "try again")
            raise BundleRefused([fault], transient=True) from None
        if reply is None or "error" in reply:
            return refusal("data", f"reading the documents ended the process of {self.memory_mib} MiB", _STEP)
        self._looks = 0
        if "faults" in reply:
            return BundleRefused([BundleFault.from_json(row) for row in reply["faults"]])
        return Documents(**reply)


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refusal(name, f"not UTF-8 at byte {error.start}", "save it as UTF-8") from None


def _reply(body: bytes, memory_mib: int, seconds: float) -> dict[str, Any] | None:
    """Of one question to a fresh process, which does not outlive it; None where the process ended instead. Raises
    ``TimeoutError`` and ``OSError``."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = start(theirs.fileno(), memory_mib)
        try:
            ours.settimeout(seconds)
            ours.sendall(frames.pack({"op": "documents"}, body))
            payload = _received(ours)
        except (BrokenPipeError, ConnectionResetError):
            payload = None
        finally:
            process.kill()
            process.wait()
    return None if payload is None else frames.unpack(payload)[0]


def _received(ours: socket.socket) -> bytes | None:
    """One frame, which the child sends once it is ready; each wait for more of it has the time anew."""
    with ours.makefile("rb") as stream:
        head = stream.read(frames.LENGTH.size)
        if len(head) < frames.LENGTH.size:
            return None
        (length,) = frames.LENGTH.unpack(head)
        payload = stream.read(length) if length <= MAX_REPLY else b""
        return payload if payload and len(payload) == length else None
