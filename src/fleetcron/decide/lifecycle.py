"""The life of a run, as one table. `scripts/lifecycle_diagram.py` draws it in `docs/explanation/lifecycle.md`."""

from __future__ import annotations

from enum import StrEnum

from fleetcron.errors import FleetcronError
from fleetcron.model import State


class Event(StrEnum):
    """What happens to a run."""

    DUE = "due"  # its time has come
    CLAIM = "claim"  # a worker takes it, up to the look-ahead before it is due
    SUCCEED = "succeed"  # the handler returned
    FAIL = "fail"  # the handler raised, attempts are left
    EXHAUST = "exhaust"  # … and none is left, or the error is one to give up on
    SNOOZE = "snooze"  # the handler asked for a later time; no attempt used
    HAND_BACK = "hand back"  # a worker that shuts down gives it back; no attempt used
    RESCUE = "rescue"  # its worker died, attempts are left
    RESCUE_EXHAUSTED = "rescue exhausted"  # … and none is left
    DISCARD = "discard"  # the handler raised Discard
    CANCEL = "cancel"  # somebody asked for it
    EXPIRE = "expire"  # not started by its start deadline
    MISS = "miss"  # judged away by its misfire or overlap policy
    PARK = "park"  # its gate is taken: it waits its turn, without a lease
    UNPARK = "unpark"  # the gate is free
    REPLAY = "replay"  # a dead letter is run again


class IllegalTransition(FleetcronError):
    """The event cannot happen to a run in this state."""

    def __init__(self, state: State, event: Event) -> None:
        allowed = ", ".join(other for start, other in TRANSITIONS if start is state) or "nothing"
        super().__init__(f"event {event!s} cannot happen to a run that is {state!s}; what can: {allowed}")
        self.state = state
        self.event = event


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.SCHEDULED, Event.DUE): State.READY,
    (State.SCHEDULED, Event.CLAIM): State.RUNNING,
    (State.SCHEDULED, Event.CANCEL): State.CANCELLED,
    # A row that nobody moved to `ready` in time is scheduled still when it is judged or expires.
    (State.SCHEDULED, Event.EXPIRE): State.EXPIRED,
    (State.SCHEDULED, Event.MISS): State.MISSED,
    (State.READY, Event.CLAIM): State.RUNNING,
    (State.READY, Event.CANCEL): State.CANCELLED,
    (State.READY, Event.EXPIRE): State.EXPIRED,
    (State.READY, Event.MISS): State.MISSED,
    (State.READY, Event.UNPARK): State.READY,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.RETRYING,
    (State.RUNNING, Event.EXHAUST): State.FAILED,
    (State.RUNNING, Event.SNOOZE): State.SCHEDULED,
    (State.RUNNING, Event.HAND_BACK): State.READY,
    (State.RUNNING, Event.RESCUE): State.RETRYING,
    (State.RUNNING, Event.RESCUE_EXHAUSTED): State.FAILED,
    (State.RUNNING, Event.DISCARD): State.DISCARDED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    # Leased, not started: claims come first, the policies are asked before the handler is.
    (State.RUNNING, Event.EXPIRE): State.EXPIRED,
    (State.RUNNING, Event.MISS): State.MISSED,
    (State.RUNNING, Event.PARK): State.READY,
    (State.RETRYING, Event.DUE): State.READY,
    (State.RETRYING, Event.CLAIM): State.RUNNING,
    (State.RETRYING, Event.CANCEL): State.CANCELLED,
    # The one way out of a final state, and only by an operator's hand: the run's id gets a new series of attempts.
    (State.FAILED, Event.REPLAY): State.READY,
}


def next_state(state: State, event: Event) -> State:
    """The state after `event`. Raises IllegalTransition if the table has no such step."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state, event) from None


def mermaid() -> str:
    """The table as a Mermaid state diagram; the events of one arrow share its label."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (start, event), end in TRANSITIONS.items():
        arrows.setdefault((start, end), []).append(event)
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {State.SCHEDULED}: submit for later, tick",
        f"    [*] --> {State.READY}: submit",
    ]
    lines += [f"    {start} --> {end}: {', '.join(events)}" for (start, end), events in arrows.items()]
    lines += [f"    {state} --> [*]" for state in State if state.final]
    return "\n".join(lines) + "\n"
