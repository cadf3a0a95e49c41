"""What callers are told while a plugin stalls: the others what is true, the stalled one that it is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kblockd.client import Answer, Call, CallError, Completed, Held
from tests.integration.staged import told
from tests.integration.stalls.installed import Stalled

STOP_SECONDS = 40.0  # the sum of all bounds of an orderly stop, and some


def execute(stalled: Stalled, call: Call) -> Answer | CallError:
    """The answer, or the refusal."""
    return told(stalled.site, call)


def execute_all(stalled: Stalled, calls: Sequence[Call]) -> list[Answer | CallError]:
    """At once."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: execute(stalled, call), calls))


@contextmanager
def others_do_well(stalled: Stalled, count: int = 3) -> Iterator[None]:
    """Calls of another upstream go on meanwhile, and each ends as if nothing were."""
    calls = [stalled.other() for _ in range(count)]
    with ThreadPoolExecutor(1) as thread:
        answers = thread.submit(execute_all, stalled, calls)
        yield
    check_completed(stalled, calls, answers.result(60), "completed_verified")


def check_completed(
    stalled: Stalled, calls: Sequence[Call], answers: Sequence[Answer | CallError], result_class: str
) -> None:
    """Each has happened once."""
    for call, answer in zip(calls, answers, strict=True):
        assert isinstance(answer, Completed), answer
        assert (answer.result_class, stalled.effects(call)) == (result_class, 1)


def check_unknown(stalled: Stalled, calls: Sequence[Call]) -> None:
    """Each acted and never said so: neither success nor "nothing happened" is claimed, and a repeat sends nothing."""
    for answers in (execute_all(stalled, calls), execute_all(stalled, calls)):
        for answer in answers:
            assert isinstance(answer, Held), answer
            assert (answer.result_class, answer.outcome_unknown, answer.result_dsse) == ("unknown_outcome", True, b"")
    assert [stalled.effects(call) for call in calls] == [1] * len(calls)


def check_well(stalled: Stalled, behaviour: str = "well") -> None:
    """A call of the stalled adapter ends well."""
    call = stalled.stalled(behaviour)
    check_completed(stalled, [call], [execute(stalled, call)], "completed_unverified")
