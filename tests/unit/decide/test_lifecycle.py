"""The table of a run's life, and the page that draws it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetcron.decide.lifecycle import TRANSITIONS, Event, IllegalTransition, mermaid, next_state
from fleetcron.errors import FleetcronError
from fleetcron.model import State

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "lifecycle.md"
PAIRS = [(state, event) for state in State for event in Event]


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_what_is_not_in_the_table_is_refused(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(IllegalTransition, match=rf"event {event} cannot happen to a run that is {state}") as caught:
        next_state(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)
    assert isinstance(caught.value, FleetcronError)


def test_final_states_never_change_but_by_replay() -> None:
    out = {(state, event): to for (state, event), to in TRANSITIONS.items() if state.final}
    assert out == {(State.FAILED, Event.REPLAY): State.READY}


def test_every_state_can_be_reached_and_every_open_one_left() -> None:
    reached, seen = {State.SCHEDULED, State.READY}, 0
    while len(reached) > seen:
        seen = len(reached)
        reached |= {to for (state, _), to in TRANSITIONS.items() if state in reached}
    assert reached == set(State)
    for state in State:
        if not state.final:
            assert any(start is state and to is not state for (start, _), to in TRANSITIONS.items())
            assert next_state(state, Event.CANCEL) is State.CANCELLED
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_only_a_lease_ends_an_attempt() -> None:
    ends = {Event.SUCCEED, Event.FAIL, Event.EXHAUST, Event.SNOOZE, Event.DISCARD, Event.HAND_BACK, Event.RESCUE}
    assert {state for state, event in TRANSITIONS if event in ends} == {State.RUNNING}


def test_what_was_started_once_is_not_missed_or_expired_between_attempts() -> None:
    assert (State.RETRYING, Event.MISS) not in TRANSITIONS
    assert (State.RETRYING, Event.EXPIRE) not in TRANSITIONS


def test_the_page_shows_the_table() -> None:
    assert f"```mermaid\n{mermaid()}```\n" in PAGE.read_text("utf-8"), "run scripts/lifecycle_diagram.py"


def test_the_diagram_has_an_arrow_for_every_step() -> None:
    arrows = [line.strip() for line in mermaid().splitlines()]
    for (state, event), to in TRANSITIONS.items():
        assert any(
            line.startswith(f"{state} --> {to}: ") and event in line.partition(": ")[2].split(", ") for line in arrows
        )
