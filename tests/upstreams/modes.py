"""Every way in which the front of ``misbehaving`` answers the call; what a mode means stands beside its name.

"After" means after the effect, and so does what says nothing else. A behaviour gets the ``Turn``, writes what it
likes, and answers whether the connection goes on.
"""

from __future__ import annotations

import enum
import functools
import gzip
import itertools
import json
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tests.upstreams.messages import JSON, Reply, chunk, event, head, whole

if TYPE_CHECKING:
    from tests.upstreams.misbehaving import Turn

Behaviour = Callable[["Turn"], bool]

ABANDONED_SECONDS: Final = 10.0  # an abandoned call is carried out this much later
LATE_SECONDS: Final = 3.5  # an answer that no time-out of two seconds waits for
SILENT_SECONDS: Final = 6.0  # longer than the HTTP client's own read time-out of 5 s
OTHER_ANSWER: Final = "another"  # in the second of two answers
_FOREVER: Final = 60.0
_STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END: Final = b"0\r\n\r\n"


class Mode(enum.Enum):
    """How the answer to the call goes wrong."""

    OK = "ok"
    SCRIPTED = "scripted"  # the next behaviour of the server's ``script``; well when there is none
    # Before the call was read, or nobody to read it.
    REFUSE = "refuse"  # nobody listens
    REFUSE_CALL = "refuse_call"  # nobody listens any more once the target was read
    DROP_ON_ACCEPT = "drop_on_accept"  # every connection is closed before anything is read
    DROP_UNREAD = "drop_unread"  # the call lies in the socket, the connection is reset
    # The call was read.
    DROP_BEFORE_EFFECT = "drop_before_effect"
    DROP_AFTER_EFFECT = "drop_after_effect"
    CLOSE_AFTER_EFFECT = "close_after_effect"  # an orderly end without a byte
    STALL_BEFORE_EFFECT = "stall_before_effect"  # nothing is done, nothing is answered
    STALL_AFTER_EFFECT = "stall_after_effect"
    GONE_AFTER_EFFECT = "gone_after_effect"  # and nobody listens any more
    LOOKUP_FAILS = "lookup_fails"  # drops after the effect, and every lookup answers 500
    LATE = "late"  # acts, and answers when ``release`` is called
    LATE_ANSWER = "late_answer"  # acts, and answers well after the deadline
    LATE_EFFECT = "late_effect"  # holds the connection, acts long after the deadline and then answers
    ABANDONED = "abandoned"  # drops the connection, and acts long afterwards
    BEYOND_FINALITY = "beyond_finality"  # drops the connection, and acts when the next call comes
    SLOW = "slow"  # silent for longer than a client's usual time-out, then well
    # The whole answer, but it is not true.
    LIES = "lies"  # says that it acted
    ACTS_TWICE = "acts_twice"
    ANSWERS_TWICE = "answers_twice"
    # Statuses.
    ERROR_BEFORE_EFFECT = "error_before_effect"  # 500
    ERROR_AFTER_EFFECT = "error_after_effect"  # 500
    NOT_FOUND_AFTER_EFFECT = "not_found_after_effect"  # 404, as a proxy makes it
    GATEWAY_TIMEOUT = "gateway_timeout"  # 504
    NOT_RUN = "not_run"  # the tool's own way to say that nothing ran
    STILL_BUSY = "still_busy"  # acts, and says in the tool's own way that it is still at work
    EDGE_524 = "edge_524"  # an edge's page
    PAGE_429 = "page_429"  # a gateway's page, under a status by which the tool refuses a call
    JSON_429 = "json_429"  # the same as a gateway's JSON
    REFUSED = "refused"  # an error answer, nothing is done
    NOTHING = "nothing"  # a success without a body
    REDIRECT_SAME = "redirect_same"
    REDIRECT_OTHER = "redirect_other"
    UPGRADE = "upgrade"  # 101
    # The answer's frame.
    HALF_HEADER = "half_header"
    HALF_BODY = "half_body"
    RESET_IN_BODY = "reset_in_body"
    HALF_CHUNK = "half_chunk"
    HEADER_FLOOD = "header_flood"  # 8 MB of headers
    HEADER_HUGE = "header_huge"  # one header of 1 MiB
    INTERIM_FLOOD = "interim_flood"  # 1xx without end
    LENGTHS_DISAGREE = "lengths_disagree"  # two Content-Lengths
    NOT_HTTP = "not_http"
    DRIP = "drip"  # a byte now and then, without end
    DRIP_HEADER = "drip_header"
    # The answer's body.
    TOO_LARGE = "too_large"  # 5 MiB
    GZIP_BOMB = "gzip_bomb"  # 1 GiB in 1 MiB
    GZIP_BROKEN = "gzip_broken"
    ENCODING_UNKNOWN = "encoding_unknown"
    GARBAGE = "garbage"  # half of a JSON text
    HTML = "html"
    UTF16 = "utf16"
    EMPTY = "empty"
    UNSTORABLE = "unstorable"  # JSON without a canonical form
    WRONG_SCHEMA = "wrong_schema"
    ERROR_ANSWER = "error_answer"  # 200, and the answer says that it did not work
    LONG_ERROR = "long_error"  # the same in half a megabyte
    ECHO_CREDENTIAL = "echo_credential"
    ECHO_IN_ERROR = "echo_in_error"
    # HTTP only.
    ACCEPTED = "accepted"  # 202 with an operation
    NAMELESS = "nameless"  # 202 without
    # MCP only.
    WRONG_ID = "wrong_id"
    NULL_ID = "null_id"  # an error, HTTP 400
    BOTH = "both"  # a result and an error
    UNKNOWN_TOOL = "unknown_tool"  # -32602
    INTERNAL_ERROR = "internal_error"
    SESSION_LOST = "session_lost"  # 404 of the protocol
    INPUT_REQUIRED = "input_required"  # nothing is done
    INPUT_AFTER_EFFECT = "input_after_effect"
    TASK = "task"
    OTHER_TYPE = "other_type"
    STREAM_BROKEN = "stream_broken"  # an event stream that ends before any event
    STREAM_ENDED = "stream_ended"  # the same in good order
    STREAM_SESSION_ERROR = "stream_session_error"
    STREAM_TWICE = "stream_twice"  # two results under one id, the second another one
    PROGRESS_FLOOD = "progress_flood"  # as fast as they can be written
    PROGRESS_FOREVER = "progress_forever"
    PROGRESS = "progress"  # some, then the answer
    # Connections: those that are open now, between two requests.
    CLOSES_IDLE = "closes_idle"
    RESETS_IDLE = "resets_idle"
    HALF_CLOSES_IDLE = "half_closes_idle"  # its own direction
    HALF_CLOSES_FIRST = "half_closes_first"  # after reading the call, then acts
    # Definitions.
    CHANGED_AFTER_DECISION = "changed_after_decision"
    CHANGED_BEFORE_CALL = "changed_before_call"  # once the target was read


def _sending(pieces: Callable[[Turn], Iterable[bytes]], *, acts: bool = True, goes_on: bool = False) -> Behaviour:
    def behaviour(turn: Turn) -> bool:
        if acts:
            turn.act()
        for piece in pieces(turn):
            turn.send(piece)
        return goes_on

    return behaviour


def _replying(reply: Callable[[Turn], Reply], *, acts: bool = True) -> Behaviour:
    return _sending(lambda turn: [whole(reply(turn))], acts=acts)


def _saying(word: str, *, acts: bool = True, echo: bool = False) -> Behaviour:
    return _replying(lambda turn: turn.say(word, echo=echo), acts=acts)


def _fixed(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    return _replying(lambda turn: Reply(status, {name.replace("_", "-"): v for name, v in headers.items()}, body))


def _coded(coding: str, body: Callable[[], bytes]) -> Behaviour:
    return _replying(lambda turn: Reply(200, {**JSON, "content-encoding": coding}, body()))


def _good(turn: Turn) -> bool:
    turn.act()
    turn.send(whole(turn.good()))
    return True


def _dropping(*, acts: bool) -> Behaviour:
    def behaviour(turn: Turn) -> bool:
        if acts:
            turn.act()
        turn.reset()
        return False

    return behaviour


def _stalling(*, acts: bool) -> Behaviour:
    def behaviour(turn: Turn) -> bool:
        if acts:
            turn.act()
        turn.pause(_FOREVER)
        return False

    return behaviour


def _gone(turn: Turn) -> bool:
    turn.act()
    turn.server.leave()
    return False


def _released(turn: Turn) -> bool:
    turn.act()
    turn.server.wait_released(_FOREVER)
    turn.send(whole(turn.good()))
    return True


def _pausing(seconds: float, *, before_effect: bool = False) -> Behaviour:
    def behaviour(turn: Turn) -> bool:
        if before_effect:
            turn.pause(seconds)
            turn.act()
        else:
            turn.act()
            turn.pause(seconds)
        turn.send(whole(turn.good()))
        return True

    return behaviour


def _abandoned(turn: Turn) -> bool:
    turn.reset()
    turn.pause(ABANDONED_SECONDS)
    turn.act()
    return False


def _beyond_finality(turn: Turn) -> bool:
    turn.server.postponed.append(turn)
    turn.reset()
    return False


def _lies(turn: Turn) -> bool:
    turn.send(whole(turn.good()))
    return True


def _acts_twice(turn: Turn) -> bool:
    turn.act()
    return _good(turn)


def _answers_twice(turn: Turn) -> Iterator[bytes]:
    yield whole(turn.good()) * 2


def _half_closes_first(turn: Turn) -> bool:
    turn.stream.shutdown(socket.SHUT_WR)
    turn.act()
    turn.pause(0.2)
    return False


def _reset_in_body(turn: Turn) -> bool:
    _sending(_half_body)(turn)
    turn.reset()
    return False


def _half_body(turn: Turn) -> Iterator[bytes]:
    good = turn.good()
    yield head(good) + good.body[: len(good.body) // 2]


def _half_chunk(turn: Turn) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    yield chunk(turn.good().body)[:-9]


def _header_flood(turn: Turn) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    yield from itertools.repeat(b"x-flood: " + b"y" * 4000 + b"\r\n", 2000)


def _interim_flood(turn: Turn) -> Iterator[bytes]:
    while not turn.over():
        yield b"HTTP/1.1 103 Early Hints\r\nlink: </" + b"a" * 50_000 + b">\r\n\r\n"


def _lengths_disagree(turn: Turn) -> Iterator[bytes]:
    good = turn.good()
    yield head(Reply(good.status, {**good.headers, "content-length": "1"}, good.body)) + good.body


def _drip(first: bytes, drop: bytes) -> Callable[[Turn], Iterator[bytes]]:
    def pieces(turn: Turn) -> Iterator[bytes]:
        yield first
        while not turn.pause(0.05):
            yield drop

    return pieces


@functools.cache
def _bomb() -> bytes:
    """1 GiB in one member: 16 MiB, flushed so that the piece can be repeated, and a trailer that nobody reaches."""
    deflate = zlib.compressobj(wbits=-15)
    piece = deflate.compress(bytes(16 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + piece * 64 + b"\x03\x00" + bytes(8)


def _stream_twice(turn: Turn) -> Iterator[bytes]:
    first = json.loads(turn.good().body)
    second = {**first, "result": {**first["result"], "structuredContent": {"refund_id": OTHER_ANSWER}}}
    yield _STREAM + event(first) + event(second) + _END


def _session_error(turn: Turn) -> Iterator[bytes]:
    error = {"code": -32001, "message": "Session expired, please re-initialize"}
    yield _STREAM + event({"jsonrpc": "2.0", "id": turn.request.document["id"], "error": error}) + _END


def _progress(*, times: int | None, seconds: float, text: str = "working") -> Callable[[Turn], Iterator[bytes]]:
    def pieces(turn: Turn) -> Iterator[bytes]:
        yield _STREAM
        for step in itertools.count(1) if times is None else range(1, times + 1):
            params: dict[str, Any] = {"progressToken": turn.request.document["id"], "progress": step, "message": text}
            yield event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            if turn.pause(seconds):
                return
        yield event(json.loads(turn.good().body)) + _END

    return pieces


def _elsewhere(turn: Turn) -> Reply:
    return Reply(303, {"location": f"http://localhost:{turn.server.port}/redirected"})


def _scripted(turn: Turn) -> bool:
    script = turn.server.script
    return (script.pop(0) if script else _good)(turn)


def answering(reply: Callable[[Turn], Reply], *, acts: bool = True) -> Behaviour:
    """One step of a script: acts or not, and answers this."""
    return _replying(reply, acts=acts)


def dropping(*, acts: bool) -> Behaviour:
    """One step of a script: acts or not, and resets the connection."""
    return _dropping(acts=acts)


BEHAVIOURS: Final[dict[Mode, Behaviour]] = {
    Mode.SCRIPTED: _scripted,
    Mode.DROP_BEFORE_EFFECT: _dropping(acts=False),
    Mode.DROP_AFTER_EFFECT: _dropping(acts=True),
    Mode.LOOKUP_FAILS: _dropping(acts=True),
    Mode.CLOSE_AFTER_EFFECT: _sending(lambda turn: []),
    Mode.STALL_BEFORE_EFFECT: _stalling(acts=False),
    Mode.STALL_AFTER_EFFECT: _stalling(acts=True),
    Mode.GONE_AFTER_EFFECT: _gone,
    Mode.LATE: _released,
    Mode.LATE_ANSWER: _pausing(LATE_SECONDS),
    Mode.LATE_EFFECT: _pausing(ABANDONED_SECONDS, before_effect=True),
    Mode.ABANDONED: _abandoned,
    Mode.BEYOND_FINALITY: _beyond_finality,
    Mode.SLOW: _pausing(SILENT_SECONDS),
    Mode.LIES: _lies,
    Mode.ACTS_TWICE: _acts_twice,
    Mode.ANSWERS_TWICE: _sending(_answers_twice, goes_on=True),
    Mode.ERROR_BEFORE_EFFECT: _saying("crash", acts=False),
    Mode.ERROR_AFTER_EFFECT: _saying("crash"),
    Mode.NOT_FOUND_AFTER_EFFECT: _fixed(404, b"no such route", content_type="text/plain"),
    Mode.GATEWAY_TIMEOUT: _fixed(504, b"<h1>Gateway Timeout</h1>", content_type="text/html"),
    Mode.NOT_RUN: _saying("not run", acts=False),
    Mode.STILL_BUSY: _saying("still busy"),
    Mode.EDGE_524: _fixed(524, b"<h1>A timeout occurred</h1>", content_type="text/html"),
    Mode.PAGE_429: _fixed(429, b"<h1>Too Many Requests</h1>", content_type="text/html"),
    Mode.JSON_429: _fixed(429, b'{"message":"Too Many Requests"}', content_type="application/json"),
    Mode.REFUSED: _saying("refused", acts=False),
    Mode.NOTHING: _saying("nothing"),
    Mode.REDIRECT_SAME: _fixed(307, location="/redirected"),
    Mode.REDIRECT_OTHER: _replying(_elsewhere),
    Mode.UPGRADE: _sending(lambda turn: [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n"]),
    Mode.HALF_HEADER: _sending(lambda turn: [b"HTTP/1.1 200 OK\r\ncontent-ty"]),
    Mode.HALF_BODY: _sending(_half_body),
    Mode.RESET_IN_BODY: _reset_in_body,
    Mode.HALF_CHUNK: _sending(_half_chunk),
    Mode.HEADER_FLOOD: _sending(_header_flood),
    Mode.HEADER_HUGE: _fixed(200, b"{}", content_type="application/json", x_huge="y" * (1 << 20)),
    Mode.INTERIM_FLOOD: _sending(_interim_flood),
    Mode.LENGTHS_DISAGREE: _sending(_lengths_disagree),
    Mode.NOT_HTTP: _sending(lambda turn: [b"SSH-2.0-OpenSSH_9.9\r\n" * 3]),
    Mode.DRIP: _sending(
        _drip(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n", b" ")
    ),
    Mode.DRIP_HEADER: _sending(_drip(b"HTTP/1.1 200 OK\r\nx-drip: ", b"y")),
    Mode.TOO_LARGE: _replying(lambda turn: turn.good("x" * (5 << 20))),
    Mode.GZIP_BOMB: _coded("gzip", _bomb),
    Mode.GZIP_BROKEN: _coded("gzip", lambda: gzip.compress(b"{}")[:-4]),
    Mode.ENCODING_UNKNOWN: _coded("br", lambda: b"\x0b\x01\x80{}\x03"),
    Mode.GARBAGE: _fixed(200, b'{"ok": tru', content_type="application/json"),
    Mode.HTML: _fixed(200, b"<html>log in</html>", content_type="text/html"),
    Mode.UTF16: _replying(
        lambda turn: Reply(200, {"content-type": "application/json; charset=utf-16"}, _recoded(turn.good().body))
    ),
    Mode.EMPTY: _fixed(200, content_type="application/json"),
    Mode.UNSTORABLE: _saying("unstorable"),
    Mode.WRONG_SCHEMA: _saying("wrong schema"),
    Mode.ERROR_ANSWER: _saying("error"),
    Mode.LONG_ERROR: _saying("long error"),
    Mode.ECHO_CREDENTIAL: _sending(lambda turn: [whole(turn.good(turn.echo()))], goes_on=True),
    Mode.ECHO_IN_ERROR: _saying("crash", echo=True),
    Mode.ACCEPTED: _saying("accepted"),
    Mode.NAMELESS: _saying("nameless"),
    Mode.WRONG_ID: _saying("wrong id"),
    Mode.NULL_ID: _saying("null id"),
    Mode.BOTH: _saying("both"),
    Mode.UNKNOWN_TOOL: _saying("unknown tool"),
    Mode.INTERNAL_ERROR: _saying("internal error"),
    Mode.SESSION_LOST: _saying("session lost"),
    Mode.INPUT_REQUIRED: _saying("input required", acts=False),
    Mode.INPUT_AFTER_EFFECT: _saying("input required"),
    Mode.TASK: _saying("task"),
    Mode.OTHER_TYPE: _saying("other type"),
    Mode.STREAM_BROKEN: _sending(lambda turn: [_STREAM]),
    Mode.STREAM_ENDED: _sending(lambda turn: [_STREAM, _END]),
    Mode.STREAM_SESSION_ERROR: _sending(_session_error),
    Mode.STREAM_TWICE: _sending(_stream_twice, goes_on=True),
    Mode.PROGRESS_FLOOD: _sending(_progress(times=None, seconds=0, text="x" * 4000)),
    Mode.PROGRESS_FOREVER: _sending(_progress(times=None, seconds=0.05)),
    Mode.PROGRESS: _sending(_progress(times=10, seconds=0.02), goes_on=True),
    Mode.HALF_CLOSES_FIRST: _half_closes_first,
}
"""All others serve the call well: what they do is done to connections or to other requests."""


def behaviour(mode: Mode) -> Behaviour:
    """How the call is served."""
    return BEHAVIOURS.get(mode, _good)


def _recoded(body: bytes) -> bytes:
    return body.decode().encode("utf-16")
