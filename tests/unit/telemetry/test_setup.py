"""Logging: JSON lines, redacted, bounded."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kblockd.telemetry.setup import MAX_MESSAGE, TALKATIVE, JsonLines, redact, set_up_logging

SECRET = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    set_up_logging(logging.INFO, stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.NOTSET)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_five_fields(lines: io.StringIO) -> None:
    logging.getLogger("kblockd.x").warning("lease %s lost", "ls_1", extra={"execution_id": "ex_1", "other": SECRET})
    (line,) = read(lines)
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "kblockd.x", "message": "lease ls_1 lost", "execution_id": "ex_1"}


def test_a_message_cannot_forge_a_line(lines: io.StringIO) -> None:
    logging.getLogger("x").warning('a\n{"level": "error"}\u2028b')
    assert len(lines.getvalue().splitlines()) == 1


def test_messages_are_bounded(lines: io.StringIO) -> None:
    logging.getLogger("x").warning("y" * 1_000_000)
    assert len(read(lines)[0]["message"]) < MAX_MESSAGE + 50


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"sent bearer {SECRET} upstream",
        f"{{'authorization': 'Basic {SECRET}'}}",
        f'{{"api_key": "{SECRET}", "a": 1}}',
        f"password={SECRET};",
        f"https://user:{SECRET}@host/path",
        f"client_secret = {SECRET}",
        f"x-access-token: {SECRET}",
        f"token_value={SECRET}",
        f"Set-Cookie: {SECRET}",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}",
        f"eyJhbGciOiJFZERTQSJ9.{SECRET}.{SECRET}",
    ],
)
def test_what_looks_like_a_credential_is_taken_out(text: str, lines: io.StringIO) -> None:
    """R530."""
    assert SECRET not in redact(text)
    logging.getLogger("x").error("%s", text)
    assert SECRET not in lines.getvalue()
    assert "[redacted]" in lines.getvalue()


def test_ordinary_text_stays() -> None:
    text = "execution ex_1: stage 9, fencing (3, 17), tokens_used 5, policy 1.2"
    assert redact(text) == text


def test_an_exception_gives_places_and_never_its_text(lines: io.StringIO) -> None:
    """R530: libraries put the offending value into the message."""

    def fails() -> None:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"card {SECRET}") from error

    try:
        fails()
    except ValueError:
        logging.getLogger("x").exception("stage 11 failed")
    (line,) = read(lines)
    assert line["error"] == ["ValueError", "KeyError"]
    assert line["at"][-1].endswith(" fails")
    assert SECRET not in lines.getvalue()


def test_arguments_that_do_not_fit_raise_nothing_and_show_nothing(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    # By hand: the handler of pytest would raise first.
    handler = next(handler for handler in logging.getLogger().handlers if isinstance(handler.formatter, JsonLines))
    for message, arguments in (("stage %d", (SECRET,)), ("next", ())):
        handler.handle(logging.LogRecord("x", logging.ERROR, __file__, 1, message, arguments, None))
    assert [line["message"] for line in read(lines)] == ["unformattable (TypeError): stage %d", "next"]
    assert SECRET not in lines.getvalue() + capsys.readouterr().err


def test_a_line_that_cannot_be_made_is_reported_without_the_record(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError(SECRET)

    logging.getLogger("x").error("m", extra={"execution_id": Broken()})
    assert read(lines)[0]["message"] == "a log line was lost: RuntimeError"
    assert SECRET not in lines.getvalue() + capsys.readouterr().err


def test_talkative_libraries_are_quiet(lines: io.StringIO) -> None:
    logging.getLogger("httpx2").info("GET https://h/?key=%s", SECRET)
    logging.getLogger("opentelemetry.exporter").info("x")
    assert lines.getvalue() == ""


def test_a_level_that_does_not_exist_is_refused(lines: io.StringIO) -> None:
    with pytest.raises(ValueError, match="LOUD"):
        set_up_logging("LOUD", lines)
