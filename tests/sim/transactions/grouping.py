"""The steps of a group's coordinator: verify, keep offsets pending, make them visible or drop them."""

from collections.abc import Iterator
from typing import Any

from tests.sim.transactions.coordinating import Step
from tests.sim.transactions.leading import adds, verified
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import GROUP, Coordinator, Group, Marker, Produce, Scope, State

OUTLIVES = Mistake.GROUP_VERIFICATION_OUTLIVES_MARKER


def with_group(state: State, **changes: Any) -> State:
    """The state with a changed group."""
    return state._replace(group=state.group._replace(**changes))


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of the group's coordinator, of the one before, and of the next."""
    group, own = state.group, state.group.coordinator
    for request in state.flying:
        if isinstance(request, Produce) and request.place == GROUP:
            yield from _receives(state, own, request, mistake)
    if own.asked is not None:
        yield from _stores_pending(state, own, mistake)
    yield from _handles_marker(state, group, own, mistake)
    if group.claims < scope.claims:
        after = Coordinator(group.pending)
        yield (
            "the group has another coordinator",
            with_group(state, coordinator=after, old=own, claims=group.claims + 1),
        )
    if group.old is not None and mistake is Mistake.GROUP_WITHOUT_SHARD:
        yield from _is_late(state, group, group.old)


def _receives(state: State, own: Coordinator, request: Produce, mistake: Mistake | None) -> Iterator[Step]:
    batch = request.batch
    if own.asked is not None or own.pending == batch:
        return
    asking = with_group(state, coordinator=own._replace(asked=batch))
    if request.version == 2:
        yield from adds(state, asking, GROUP, request, mistake)
    elif verified(state.record, GROUP, batch.producer, mistake):
        yield f"the group: {batch} is verified", asking


def _stores_pending(state: State, own: Coordinator, mistake: Mistake | None) -> Iterator[Step]:
    """One write that compares the shard's record. Its answer is waited for before anything else is written."""
    after = own._replace(asked=None)
    if own.pending is None or own.asked is None or own.asked.producer >= own.pending.producer:
        stored = with_group(state, coordinator=after._replace(pending=own.asked), pending=own.asked)
        if mistake is Mistake.GROUP_SHOWS_AT_ONCE and own.asked is not None:
            stored = with_group(stored, visible=state.group.visible | {own.asked.transaction})
        yield f"the group: {own.asked} is pending", stored
    yield "the group: offsets are not stored", with_group(state, coordinator=after)


def _handles_marker(state: State, group: Group, own: Coordinator, mistake: Mistake | None) -> Iterator[Step]:
    marker = own.view
    if marker != group.marker:
        seen = own._replace(view=group.marker)
        yield f"the group: reads the marker key: {group.marker}", with_group(state, coordinator=seen)
    if own.has_deleted is not None:
        done = _applied(group, own.pending, own.has_deleted)
        after = own._replace(pending=None, has_deleted=None)
        yield "the group: applies the marker", with_group(state, **done, coordinator=after)
    if marker is None or group.marker is None or marker.revision != group.marker.revision:
        return
    if mistake is Mistake.GROUP_DELETES_FIRST:
        after = own._replace(view=None, asked=None, has_deleted=marker)
        yield "the group: deletes the marker key", with_group(state, marker=None, coordinator=after)
        return
    after = own._replace(view=None, asked=own.asked if mistake is OUTLIVES else None, pending=None)
    done = _applied(group, own.pending, marker)
    yield f"the group: applies {marker}", with_group(state, **done, marker=None, coordinator=after)


def _applied(group: Group, pending: Any, marker: Marker) -> dict[str, Any]:
    """The group's offsets after the marker, as the coordinator knows them: what is pending is visible or dropped."""
    if pending is None:
        return {}
    visible = group.visible | {pending.transaction} if marker.is_commit else group.visible
    return {"pending": None, "visible": visible}


def _is_late(state: State, group: Group, old: Coordinator) -> Iterator[Step]:
    if old.view != group.marker:
        seen = old._replace(view=group.marker)
        yield "the group: the old coordinator reads the marker key", with_group(state, old=seen)
    if old.view is not None and old.view == group.marker:
        done = _applied(group, old.pending, old.view)
        yield "the group: the old coordinator applies the marker", with_group(state, **done, marker=None)
