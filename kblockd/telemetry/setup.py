"""Logging: JSON lines on stderr, redacted and bounded.

A line holds time, level, logger, message, execution_id, and for an exception its class names and code locations. An
exception's text is never written, because libraries put offending values into it. Pass the identifier with
``extra={"execution_id": …}``; every other extra is ignored. Source: R530, S1 on secrets.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
import traceback
from typing import Final, TextIO

MAX_MESSAGE: Final = 2048  # characters
MAX_FRAMES: Final = 20  # the innermost ones of an exception
REDACTED: Final = "[redacted]"
_SCANNED: Final = 16_384  # characters of a message that are searched for secrets; the rest is cut off first

# Their INFO lines contain URLs with queries, headers or bodies.
TALKATIVE: Final = ("httpx", "httpx2", "httpcore", "httpcore2", "mcp", "grpc", "asyncio", "opentelemetry")

_SECRETS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\b(?i:bearer|basic|digest)\s+[A-Za-z0-9+/=._~-]{4,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
    re.compile(r"(?<=://)[^/\s:@]{1,256}:[^/\s@]{1,256}(?=@)"),
)
_NAMED: Final = re.compile(
    r"""(?ix)
    ((?:password|passwd|secret|token|api[_-]?key|private[_-]?key|authorization|cookie|credential)
     [a-z0-9_-]{0,16}["']?\s{0,8}[:=]\s{0,8})
    ("[^"]*"|'[^']*'|[^\s,;&}\]]+)
    """
)


def redact(text: str) -> str:
    """Replaces anything like a credential: key blocks, authorization values, JWTs, URL passwords, named secrets."""
    text = text[:_SCANNED]
    for pattern in _SECRETS:
        text = pattern.sub(REDACTED, text)
    return _NAMED.sub(lambda match: match[1] + REDACTED, text)


def bounded(text: str) -> str:
    """At most ``MAX_MESSAGE`` characters, with a note of how many were cut."""
    cut = len(text) - MAX_MESSAGE
    return text if cut <= 0 else f"{text[:MAX_MESSAGE]}… [{cut} more characters]"


class JsonLines(logging.Formatter):
    """One record, one line of JSON; newlines inside a message are escaped, so no message can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": bounded(redact(_message(record))),
        }
        execution_id = getattr(record, "execution_id", "")
        if execution_id:
            line["execution_id"] = bounded(redact(str(execution_id)))[:128]
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _chain(record.exc_info[1])
            line["at"] = _places(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # arguments do not match; the template alone is safe to log
        return f"unformattable ({type(error).__name__}): {record.msg if isinstance(record.msg, str) else ''}"


def _chain(error: BaseException) -> list[str]:
    names: list[str] = []
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen and len(names) < MAX_FRAMES:
        seen.add(id(step))
        names.append(type(step).__name__)
        step = step.__cause__ or step.__context__
    return names


def _places(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


class _SafeStreamHandler(logging.StreamHandler[TextIO]):
    """Reports a failure of logging itself without the record; the standard hook would print the arguments."""

    def handleError(self, record: logging.LogRecord) -> None:
        failure = sys.exc_info()[0]
        line = {"level": "error", "logger": __name__, "message": f"a log line was lost: {failure and failure.__name__}"}
        try:
            self.stream.write(json.dumps(line) + "\n")
        except (OSError, ValueError):
            return


def set_up_logging(level: int | str = logging.INFO, stream: TextIO | None = None) -> None:
    """Replaces the root logger's handlers; call once, at the start of the process. Raises ValueError for a level
    that logging does not know."""
    handler = _SafeStreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
