"""W3C trace context, in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.telemetry.context import Parent, extract, outgoing, parse_traceparent, parse_tracestate
from kblockd.telemetry.recorder import Trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
    ],
)
def test_valid_traceparents(text: str, sampled: bool) -> None:
    assert parse_traceparent(text) == Parent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0x",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01.x",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 600,
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_invalid_traceparents_start_a_trace_of_our_own(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.text(max_size=80))
def test_parsing_never_raises(text: str) -> None:
    parse_traceparent(text)
    assert len(parse_tracestate([text])) <= 512


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"], "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1 ,\tb=2, "], "a=1,b=2"),
        (["fw529a3039@dt=FfAA", "0t@x=1"], "fw529a3039@dt=FfAA,0t@x=1"),
        (["a=1,a=2"], ""),
        (["A=1"], ""),
        (["a=b=c"], ""),
        (["a="], ""),
        (["a=é"], ""),
        (["a=1\r\nx-evil: 1"], ""),
        ([",".join(f"k{n}=1" for n in range(33))], ""),
        (["a=" + "x" * 257], ""),
        (["a=" + "x" * 250, "b=" + "x" * 250, "c=" + "x" * 250], ""),
        ([], ""),
    ],
)
def test_tracestate(texts: list[str], kept: str) -> None:
    assert parse_tracestate(texts) == kept


def test_extract_takes_one_traceparent_and_no_baggage() -> None:
    pair = ("traceparent", f"00-{TRACE}-{SPAN}-01")
    state = ("tracestate", "a=1")
    assert extract([pair, state, ("baggage", "customer=42")]) == Parent(TRACE, SPAN, True, "a=1")
    assert extract([pair, pair]) is None
    assert extract([("traceparent", pair[1].encode())]) is None
    assert extract([state]) is None
    assert extract([pair, ("tracestate", "BROKEN")]) == Parent(TRACE, SPAN, True, "")


def test_outgoing_names_the_stage_that_calls() -> None:
    """R514: the upstream's own spans hang under the span of the call."""
    trace = Trace(trace_id=TRACE, parent_span_id=SPAN, sampled=True, tracestate="a=1", root_span_id="b" * 16)
    with trace.stage(11, "dispatch") as row:
        context = outgoing(trace, row)
    assert context == {"traceparent": f"00-{TRACE}-{trace.span_id(row)}-01", "tracestate": "a=1"}
    assert trace.span_id(row) not in (SPAN, trace.span_id())
    assert parse_traceparent(context["traceparent"]) == Parent(TRACE, trace.span_id(row), True)


def test_outgoing_finds_the_innermost_open_row() -> None:
    """R514: a stage behind the decorator does not see its row."""
    trace = Trace(trace_id=TRACE, root_span_id="b" * 16)
    with trace.stage(10, "mark_sent"):
        pass
    with trace.stage(11, "dispatch") as dispatch:
        assert outgoing(trace)["traceparent"].split("-")[2] == trace.span_id(dispatch)
        with trace.nested(dispatch, "upstream_call") as call:
            assert outgoing(trace)["traceparent"].split("-")[2] == trace.span_id(call)
        assert outgoing(trace)["traceparent"].split("-")[2] == trace.span_id(dispatch)
    assert outgoing(trace)["traceparent"].split("-")[2] == "b" * 16


def test_outgoing_tells_the_decision_and_never_baggage() -> None:
    trace = Trace(trace_id=TRACE, root_span_id="b" * 16, parent_sampled=True)
    assert outgoing(trace) == {"traceparent": f"00-{TRACE}-{'b' * 16}-00"}
    assert outgoing(Trace()) == {}
