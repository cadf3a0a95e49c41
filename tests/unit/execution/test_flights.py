"""Definitions are asked once for all who wait, and nobody gets an answer to a question older than his call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kblockd.execution.flights import Flights


class Upstream:
    """Counts the questions and the most that were under way at once; answers with the question's number."""

    def __init__(self) -> None:
        self.asked = 0
        self.under_way = 0
        self.most = 0
        self.answers: list[asyncio.Event] = []

    async def __call__(self) -> int:
        self.asked += 1
        number, let = self.asked, asyncio.Event()
        self.answers.append(let)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await let.wait()
        finally:
            self.under_way -= 1
        return number


async def _turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _join(flights: Flights, upstream: Callable[[], object]) -> asyncio.Task[object]:
    return asyncio.ensure_future(flights.join("tool", upstream))  # type: ignore[arg-type]  # any coroutine function


async def test_agt_04_eight_hundred_calls_ask_for_a_definition_twice() -> None:
    flights, upstream = Flights(), Upstream()
    first = _join(flights, upstream)
    await _turn()
    crowd = [_join(flights, upstream) for _ in range(800)]
    await _turn()
    assert upstream.asked == 1
    upstream.answers[0].set()
    await _turn()
    assert upstream.asked == 2
    upstream.answers[1].set()
    assert await first == 1
    assert set(await asyncio.gather(*crowd)) == {2}
    assert (upstream.asked, upstream.most) == (2, 1)


async def test_agt_04_a_call_never_gets_an_answer_to_a_question_that_was_sent_before_it() -> None:
    """The definition changes while the first question is under way: only the first caller may see the old one."""
    flights, upstream = Flights(), Upstream()
    callers = [_join(flights, upstream)]
    for number in range(1, 6):
        await _turn()
        callers.append(_join(flights, upstream))
        await _turn()
        assert upstream.asked == number  # it waits for the next question
        upstream.answers[number - 1].set()
    await _turn()
    upstream.answers[5].set()
    assert await asyncio.gather(*callers) == [1, 2, 3, 4, 5, 6]


async def test_who_goes_away_takes_nobodys_answer_with_him() -> None:
    flights, upstream = Flights(), Upstream()
    gone, stays = _join(flights, upstream), _join(flights, upstream)
    await _turn()
    gone.cancel()
    await _turn()
    upstream.answers[0].set()
    assert await stays == 1


async def test_a_failure_is_told_to_all_who_waited_for_it_and_to_nobody_after_them() -> None:
    flights = Flights()
    tries = 0

    async def once() -> int:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        if tries == 1:
            raise ValueError("away")
        return tries

    told = await asyncio.gather(*(flights.join("tool", once) for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in told] == [ValueError] * 3
    assert await flights.join("tool", once) == 2


async def test_things_are_asked_beside_each_other() -> None:
    flights, upstream = Flights(), Upstream()
    both = [asyncio.ensure_future(flights.join(about, upstream)) for about in ("a", "b")]
    await _turn()
    assert upstream.most == 2
    for let in upstream.answers:
        let.set()
    assert sorted(await asyncio.gather(*both)) == [1, 2]
    with pytest.raises(KeyError):
        flights._asking["a"]  # nothing is left behind
