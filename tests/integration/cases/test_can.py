"""What has no canonical form, over the whole pipeline: refused as an argument, kept as an answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from kblockd.client import Call
from kblockd.client.answers import Completed
from kblockd.client.errors import InvalidArgumentError
from tests.harness import merged
from tests.integration.cases.wire import send
from tests.integration.pipeline import limits
from tests.integration.pipeline.local import LocalSite, body, news, order, refund_in, size
from tests.integration.pipeline.shop import Shop
from tests.upstreams.messages import JSON, Reply

SURROGATE = b"\xed\xa0\x80"  # half of a pair, as some encoders write it
MEMBERS = {"count": {"type": "integer"}, "memo": {}}
OPEN = merged(limits.UNVERIFIED, {"tool": {"arguments_schema": {"properties": MEMBERS}}})


@pytest.fixture(scope="module")
def placed() -> Iterator[tuple[LocalSite, Shop]]:
    """A daemon that lets small refunds through, with a count and a memo of any kind, and the shop behind it."""
    with limits.limited(200.0, OPEN) as made:
        yield made


def written(arguments: str) -> Call:
    """A call whose arguments are this text."""
    mine = order()
    call = refund_in("shop", mine, key=mine)
    text = arguments.replace("ORDER", f'"order_id":"{mine}","amount":"1.00","currency":"EUR"').encode()
    return dataclasses.replace(call, envelope=dataclasses.replace(call.envelope, arguments_json=text))


def check_refused(placed: tuple[LocalSite, Shop], *memos: str) -> None:
    """Each as a member of otherwise good arguments: the field is named, nothing is on record, nobody was called."""
    site, shop = placed
    before, requests = size(site), len(shop.requests)
    with site.client() as agent:
        for memo in memos:
            with pytest.raises(InvalidArgumentError) as refused:
                agent.execute(written("{ORDER," + memo + "}"))
            assert [one.field for one in refused.value.violations] == ["envelope.arguments_json"], memo
    assert news(site, before) == []
    assert len(shop.requests) == requests


def test_can_01_a_member_that_stands_twice_is_refused(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-01: at the top and nested, also when one of the two is escaped."""
    check_refused(
        placed, '"amount":"2.00"', '"memo":{"a":1,"a":2}', '"memo":[{"a":1,"\\u0061":1}]', '"\\u0061mount":"2.00"'
    )


def test_can_05_a_number_beyond_a_double_is_refused(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-05: 1e400 and an integer of 5,000 digits."""
    check_refused(placed, '"memo":1e400', '"memo":-1e400', f'"memo":{"9" * 5000}', f'"memo":[{"9" * 5000}.5]')


def test_can_13_nan_and_infinity_are_refused(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-13: no number of JSON, whatever some parsers take."""
    check_refused(placed, '"memo":NaN', '"memo":Infinity', '"memo":[-Infinity]')


def test_can_08_what_is_nested_too_deeply_is_refused(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-08: 33, 34, 50, 200 and 100,000 levels; the daemon stays up."""
    depths = (33, 34, 50, 200, 100_000)
    check_refused(placed, *(f'"memo":{"[" * (depth - 1)}1{"]" * (depth - 1)}' for depth in depths))
    with placed[0].client() as agent:
        assert isinstance(agent.execute(written('{ORDER,"memo":' + "[" * 31 + "1" + "]" * 31 + "}")), Completed)


def test_can_07_half_a_surrogate_pair_is_refused(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-07: in arguments, and as bytes in the key and in the operation; no state."""
    check_refused(placed, '"memo":"\\ud800"', '"memo":{"\\udfff":1}', '"memo":"\\ud800\\ud800"')
    site, _ = placed
    before = size(site)
    call = refund_in("shop", order(), key="key-ABC", operation="payment.refund.ABC")
    for field in (b"key-", b"payment.refund."):
        with pytest.raises(grpc.RpcError) as refused:
            send(site, call, change=lambda request, field=field: request.replace(field + b"ABC", field + SURROGATE))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert news(site, before) == []


def test_can_10_integers_stay_integers(placed: tuple[LocalSite, Shop]) -> None:
    """CAN-10: 5 reaches the upstream as 5; beyond 2^53 it is refused, and travels as a text."""
    check_refused(placed, '"count":9007199254740993', '"memo":-9007199254740993')
    site, shop = placed
    with site.client() as agent:
        assert isinstance(agent.execute(written('{ORDER,"count":5,"memo":"9007199254740993"}')), Completed)
    sent = json.loads(shop.calls[-1].body, parse_float=_no_float)
    assert (sent["count"], sent["memo"]) == (5, "9007199254740993")
    assert b'"count":5,' in shop.calls[-1].body


def _no_float(text: str) -> Any:
    raise AssertionError(f"{text} is no integer")


ANSWERS = {
    "1e400": b"1e400",
    "nan": b"NaN",
    "digits": b"9" * 5000,
    "surrogate": b'"\\ud800"',
    "twice": b'"a","status":"b"',
}


@pytest.mark.parametrize("value", ANSWERS.values(), ids=ANSWERS.keys())
def test_can_05_can_07_an_answer_without_a_form_keeps_its_class(placed: tuple[LocalSite, Shop], value: bytes) -> None:
    """CAN-05, CAN-07, CAN-01: it was an answer, and the action is done; of what was said the digest is kept."""
    site, shop = placed
    call = written("{ORDER}")
    said = b'{"ok":true,"refund_id":"re_1","status":' + value + b"}"
    shop.shop.answers[call.envelope.target.id] = lambda _: Reply(200, dict(JSON), said)
    with site.client() as agent:
        done = agent.execute(call)
    assert isinstance(done, Completed)
    assert (done.result_class, len(shop.shop.of(call.envelope.target.id))) == ("completed_unverified", 1)
    outcome = body(site, done.execution_id, "attempt.outcome")
    assert (outcome["class"], outcome["code"], outcome["sent"]) == (
        "completed_unverified",
        "RESULT_NOT_STORABLE",
        "answered",
    )
    assert outcome["raw_sha256"] == hashlib.sha256(said).hexdigest()
