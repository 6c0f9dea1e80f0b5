"""The state machines as their documents show them: drawings of their states, and tables of their events."""

import dataclasses

from kafscale.groups.machine import TABLE
from kafscale.groups.states import GroupState
from kafscale.log.leadership.events import Act, Refuse
from kafscale.log.leadership.machine import ROWS
from kafscale.log.leadership.states import RIGHTS, Rights, State
from kafscale.transactions.machine import TABLE as TRANSACTION_TABLE
from kafscale.transactions.machine import ignore as no_effect
from scripts.document_table import table


def group_states_drawing() -> str:
    """The transitions between the states of a group, with the events that cause them."""
    events: dict[tuple[GroupState, GroupState], list[str]] = {}
    for (state, event), row in TABLE.items():
        for to in row.to:
            if to is not state:
                events.setdefault((state, to), []).append(event.__name__)
    ways = [f"    {state} --> {to} : {', '.join(names)}" for (state, to), names in events.items()]
    return "\n".join(
        ("```mermaid", "stateDiagram-v2", f"    [*] --> {GroupState.EMPTY}", *ways, "```"),
    )


def group_events_table() -> str:
    """The effect of each event in each state of a group."""
    return table(
        ("State", "Event", "What happens", "State after it"),
        (
            (state, f"`{event.__name__}`", row.meaning, ", ".join(row.to))
            for (state, event), row in TABLE.items()
        ),
    )


def transaction_states_table() -> str:
    """The effect of each event in each state of a transactional id."""
    return table(
        ("State", "Event", "What happens", "State after it"),
        (
            (state.name, f"`{event.__name__}`", row.meaning, ", ".join(to.name for to in row.to))
            for (state, event), row in TRANSACTION_TABLE.items()
            if row.action is not no_effect
        ),
    )


def leadership_drawing() -> str:
    """The ways from one state of a partition's leadership to another, with their events."""
    events: dict[tuple[State, State], list[str]] = {}
    for (state, event), row in ROWS.items():
        if row.to is not state:
            events.setdefault((state, row.to), []).append(event)
    ways = [f"    {state} --> {to} : {', '.join(names)}" for (state, to), names in events.items()]
    starts = [f"    [*] --> {state}" for state in (State.FOLLOWING, State.CLAIMING)]
    return "\n".join(("```mermaid", "stateDiagram-v2", *starts, *ways, f"    {State.CLOSED} --> [*]", "```"))


def leadership_rights_table() -> str:
    """The rights of a partition in each state, as a table."""
    rights = [field.name for field in dataclasses.fields(Rights)]
    return table(
        ("State", *rights),
        ((state, *("yes" if getattr(RIGHTS[state], name) else "" for name in rights)) for state in State),
    )


def leadership_events_table() -> str:
    """The effect of each event in each state of a partition's leadership, as a table."""
    return table(
        ("State", "Event", "What happens", "Effects", "State after it"),
        (
            (state, f"`{event}`", row.meaning, ", ".join(map(_effect, row.effects)), row.to)
            for (state, event), row in ROWS.items()
        ),
    )


def _effect(effect: Act | Refuse) -> str:
    return f"refuse what waits ({effect.error_code.name})" if isinstance(effect, Refuse) else effect
