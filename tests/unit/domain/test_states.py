"""The transition table: terminal states absorb, everything is reachable, nothing is a dead end, nothing else goes."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain.states import (
    TERMINAL,
    TRANSITIONS,
    Event,
    IllegalTransition,
    Phase,
    Place,
    ResultClass,
    State,
    advance,
)

START: Place = (State.PROPOSED, Phase.NONE)
EVERYWHERE = list(itertools.product(State, Phase))


def reachable(start: Place) -> set[Place]:
    """Every place that some sequence of events leads to."""
    found, waiting = {start}, [start]
    while waiting:
        for place in TRANSITIONS[waiting.pop()].values():
            if place not in found:
                found.add(place)
                waiting.append(place)
    return found


def test_every_state_is_reachable_and_no_place_is_idle() -> None:
    """The table holds exactly what can be come to; only ``cancelling`` waits for its event."""
    places = reachable(START)
    assert places == set(TRANSITIONS)
    assert {place[0] for place in places} == set(State)
    assert set(Phase) - {place[1] for place in places} == {Phase.CANCELLING}
    assert set(Event) == {event for events in TRANSITIONS.values() for event in events}


def test_only_an_executing_action_has_a_phase() -> None:
    assert all((state is State.EXECUTING) == (phase is not Phase.NONE) for state, phase in TRANSITIONS)


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_terminal_states_absorb(state: State, phase: Phase, event: Event) -> None:
    """C6: no event leaves an end."""
    with pytest.raises(IllegalTransition):
        advance((state, phase), event)


def test_there_is_no_dead_end_but_the_terminal_states() -> None:
    """From everywhere an end can be come to, and only ends lead nowhere; held leaves by an operator's word."""
    ends = {(state, Phase.NONE) for state in TERMINAL}
    assert {place for place, events in TRANSITIONS.items() if not events} == ends
    assert all(reachable(place) & ends for place in TRANSITIONS)
    assert TRANSITIONS[(State.HELD, Phase.NONE)].keys() == {Event.RESOLVED, Event.SUCCEEDED, Event.FAILED}


def test_the_sweep_can_close_every_executing_action() -> None:
    """C3: whatever phase it stopped in, an execution can be sealed as failed."""
    for state, phase in TRANSITIONS:
        if state is State.EXECUTING:
            assert advance((state, phase), Event.FAILED) == (State.FAILED, Phase.NONE)


def test_the_only_way_to_an_effect_is_claimed_then_sent() -> None:
    """C2: nothing is sent that was not claimed under this very attempt, and nothing claimed after it was sent unless
    it is proved absent: from recovering."""
    into_sent = [
        (place, event) for place, events in TRANSITIONS.items() for event, to in events.items() if to[1] == "sent"
    ]
    assert into_sent == [((State.EXECUTING, Phase.CLAIMED), Event.SENT)]
    claimable = {place for place, events in TRANSITIONS.items() if Event.CLAIMED in events}
    assert claimable == {
        (State.APPROVED, Phase.NONE),
        (State.EXECUTING, Phase.CLAIMED),
        (State.EXECUTING, Phase.RECOVERING),
    }


def test_c19_what_was_only_sent_never_succeeds() -> None:
    """``succeeded`` is said after an answer, a finding or an operator, never from claimed, sent or accepted."""
    assert {place[1] or place[0] for place, events in TRANSITIONS.items() if Event.SUCCEEDED in events} == {
        Phase.RECONCILING,
        Phase.VERIFYING,
        State.HELD,
    }


def test_the_ten_classes_are_the_requirements_words() -> None:
    """R211 to R220."""
    assert [str(c) for c in ResultClass if c] == [
        "not_started",
        "accepted",
        "completed_verified",
        "completed_unverified",
        "partially_completed",
        "failed_before_side_effect",
        "failed_after_side_effect",
        "unknown_outcome",
        "compensated",
        "compensation_failed",
    ]


@given(st.lists(st.sampled_from(Event), max_size=40))
def test_random_events_never_leave_the_table(events: list[Event]) -> None:
    """An illegal event raises, names itself and its place, and changes nothing."""
    table = copy.deepcopy(TRANSITIONS)
    place = START
    for event in events:
        before = place
        if event in TRANSITIONS[before]:
            place = advance(before, event)
            assert TRANSITIONS[before][event] == place
            assert before[0] not in TERMINAL
        else:
            with pytest.raises(IllegalTransition) as raised:
                advance(before, event)
            assert (raised.value.place, raised.value.event) == (before, event)
        assert place in TRANSITIONS
    assert table == TRANSITIONS


@given(st.sampled_from(EVERYWHERE), st.sampled_from(Event))
def test_the_table_decides_everywhere(place: Place, event: Event) -> None:
    """Also in places that cannot be, such as a terminal state with a phase."""
    wanted = TRANSITIONS.get(place, {}).get(event)
    if wanted is not None:
        assert advance(place, event) == wanted
        return
    with pytest.raises(IllegalTransition, match=f"{event} is illegal in {place[0]}"):
        advance(place, event)
