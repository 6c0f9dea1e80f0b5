"""The steps of a leader: append, acknowledge, report its progress, consolidate, seal, hand over, collect."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from kafscale.journal.collection import collectable
from kafscale.journal.own_journal import OwnJournal, found_fence, found_own
from tests.sim.journal.bucket import settled
from tests.sim.journal.mistakes import Mistake
from tests.sim.journal.states import (
    SEALED,
    Broker,
    Entry,
    Fence,
    Home,
    Kept,
    Lead,
    Object,
    Record,
    Scope,
    Sent,
    Slice,
    State,
    replaced,
)

Step = tuple[str, State]


def with_broker(state: State, index: int, broker: Broker) -> State:
    return state._replace(brokers=replaced(state.brokers, index, broker))


def with_cell(state: State, journal: int, sequence: int, cell: Entry | Fence | None) -> State:
    cells = replaced(state.journals[journal], sequence, cell)
    return state._replace(journals=replaced(state.journals, journal, cells))


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of all leaders, and of the collector."""
    for index, broker in enumerate(state.brokers):
        yield from _hears(state, index, broker, mistake)
        if not broker.is_over:
            yield from _sends(state, index, broker, scope, mistake)
            yield from _tells(state, index, broker)
            for partition, lead in enumerate(broker.leads):
                if lead is not None:
                    yield from _writes(state, index, broker, partition, lead, scope, mistake)
        yield from _collects(state, index, broker, mistake)


# --- append


def _sends(state: State, index: int, broker: Broker, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    if len(broker.sent) >= scope.in_flight or broker.next_sequence >= scope.cells:
        return
    able = [
        partition
        for partition, lead in enumerate(broker.leads)
        if lead is not None and broker.made[partition] < scope.values[index]
    ]
    for count in range(1, len(able) + 1):
        for partitions in combinations(able, count):
            yield from _seals_entry(state, index, broker, partitions, scope, mistake)


def _seals_entry(
    state: State,
    index: int,
    broker: Broker,
    partitions: tuple[int, ...],
    scope: Scope,
    mistake: Mistake | None,
) -> Iterator[Step]:
    slices: list[Slice] = []
    objects = state.objects
    leads, made = broker.leads, broker.made
    for partition in partitions:
        lead = leads[partition]
        assert lead is not None
        base, value = len(lead.log), 100 * (index + 1) + 10 * partition + made[partition]
        made = replaced(made, partition, made[partition] + 1)
        is_own = False
        if scope.own_objects and partition == 0:
            own = Object(partition, base, value, is_sealed=False, has_index=mistake is Mistake.INDEX_EARLY)
            # The object's put is late, and the broker dies or gives it up before the entry.
            gave_up = with_broker(state, index, broker._replace(made=made))
            yield f"{index} gives up the object of {value}", gave_up._replace(flying=state.flying | {own})
            is_taken = any(not one.is_sealed and one[:2] == own[:2] for one in objects)
            if not is_taken:
                objects |= {own}
            is_own = not is_taken or mistake is Mistake.LEFTOVER_FOR_OWN
        slices.append(Slice(partition, base, value, is_own))
        log = (*lead.log, Kept(value, Home(index, broker.next_sequence)))
        leads = replaced(leads, partition, lead._replace(log=log))
    entry = Entry(tuple(slices), broker.done)
    sent = (*broker.sent, Sent(broker.next_sequence, entry, is_there=False))
    after = broker._replace(leads=leads, made=made, sent=sent, next_sequence=broker.next_sequence + 1)
    out = with_broker(state, index, after)._replace(objects=objects)
    flying = state.flying | {(index, broker.next_sequence, entry)}
    yield f"{index} sends {entry}", out._replace(flying=flying)


def _hears(state: State, index: int, broker: Broker, mistake: Mistake | None) -> Iterator[Step]:
    """It puts each entry again until it knows what lies there, also after it found a fence above it."""
    before = OwnJournal(broker.next_sequence, tuple(one.is_there for one in broker.sent), broker.is_over)
    for place, one in enumerate(broker.sent):
        if one.is_there:
            continue
        found = state.journals[index][one.sequence]
        if found is not None and found != one.entry:
            ended = found_fence(before, one.sequence)
            over = Broker(
                is_over=True,
                leads=(None,) * len(broker.leads),
                next_sequence=ended.next_sequence,
                sent=broker.sent[:place],
                pursuit=None,
                claim=None,
                made=broker.made,
            )
            yield f"{index} finds its journal ended at {one.sequence}", with_broker(state, index, over)
            continue
        out = state if found else with_cell(state, index, one.sequence, one.entry)
        after = found_own(before, one.sequence)
        sent = replaced(broker.sent, place, one._replace(is_there=True))
        committed = [each for each in sent if each.sequence <= after.committed_through]
        acknowledged = [one] if mistake is Mistake.ACK_OUT_OF_ORDER else committed
        told = {each[:3] for entry in acknowledged for each in entry.entry.slices}
        heard = with_broker(out, index, broker._replace(sent=sent[len(committed) :]))
        yield (
            f"{index} hears of {index}/{one.sequence}, acknowledges {sorted(told)}",
            heard._replace(told=state.told | told),
        )


def _tells(state: State, index: int, broker: Broker) -> Iterator[Step]:
    if state.progress[index] < broker.done and state.ended[index] is None:
        progress = replaced(state.progress, index, broker.done)
        yield f"{index} tells progress {broker.done}", state._replace(progress=progress)


# --- records


def in_flight(broker: Broker, partition: int) -> int:
    """The partition's slices that are in flight, also from a time when the broker led it before."""
    return sum(one.partition == partition for sent in broker.sent for one in sent.entry.slices)


def _writes(
    state: State,
    index: int,
    broker: Broker,
    partition: int,
    lead: Lead,
    scope: Scope,
    mistake: Mistake | None,
) -> Iterator[Step]:
    waiting = in_flight(broker, partition)
    committed = lead.log[: len(lead.log) - waiting]
    if scope.own_objects or scope.seals:
        for base, kept in enumerate(committed):
            yield from _makes_sealed(state, index, partition, base, kept, scope)
    else:  # sealed by what consolidates
        made = {Object(partition, base, kept.value, True, True) for base, kept in enumerate(committed)}
        state = state._replace(objects=state.objects | made)
    position, log = broker.done, committed
    if mistake is Mistake.CONSOLIDATE_EARLY:
        position, log = broker.next_sequence - 1, lead.log
    record = Record(index, settled(state, partition, log), position, lead.known.revision + 1)
    if position > lead.known.position or record.log != lead.known.log:
        after = broker._replace(
            leads=replaced(broker.leads, partition, Lead(record, settled(state, partition, lead.log)))
        )
        yield from _puts_record(state, index, broker, partition, record, after, "consolidates")
    if (not waiting or mistake is Mistake.HAND_OVER_EARLY) and lead.known.revision <= scope.hand_overs:
        record = Record(None, settled(state, partition, committed), -1, lead.known.revision + 1)
        after = broker._replace(leads=replaced(broker.leads, partition, None))
        yield from _puts_record(state, index, broker, partition, record, after, "hands over")


def _puts_record(
    state: State, index: int, broker: Broker, partition: int, record: Record, after: Broker, what: str
) -> Iterator[Step]:
    """A write under a compare of what the leader wrote last; if it fails, the partition is lost."""
    if state.records[partition].revision == record.revision - 1:
        out = with_broker(state, index, after)
        records = replaced(state.records, partition, record)
        yield f"{index} {what} {partition}: {record}", out._replace(records=records)
    else:
        lost = broker._replace(leads=replaced(broker.leads, partition, None))
        yield f"{index} finds the record of {partition} taken", with_broker(state, index, lost)


def _makes_sealed(
    state: State, index: int, partition: int, base: int, kept: Kept, scope: Scope
) -> Iterator[Step]:
    """The index of an own object; a sealed copy of a slice within an entry."""
    for stored in state.objects:
        if (stored.partition, stored.base) == (partition, base) and stored.value == kept.value:
            if not stored.has_index:
                objects = state.objects - {stored} | {stored._replace(has_index=True)}
                yield f"{index} puts the index of {stored}", state._replace(objects=objects)
            return
    if scope.seals:
        sealed = Object(partition, base, kept.value, is_sealed=True, has_index=True)
        yield f"{index} seals {sealed}", state._replace(objects=state.objects | {sealed})


# --- collection


def _collects(state: State, index: int, broker: Broker, mistake: Mistake | None) -> Iterator[Step]:
    found = collectable(
        state.journal_record(index), broker.done, state.declared(index), _needed(state, index)
    )
    planted = _wrongly_collected(state, index, broker, mistake)
    for sequence in sorted(found | planted):
        yield f"{index}/{sequence} is collected", with_cell(state, index, sequence, None)


def _needed(state: State, journal: int, *, named: bool = True, unconsolidated: bool = True) -> Iterator[int]:
    """The entries that records name, and those with a slice that its partition's record does not have yet."""
    for record in state.records if named else ():
        for kept in record.log:
            if kept.home != SEALED and kept.home.journal == journal:
                yield kept.home.sequence
    for sequence, cell in enumerate(state.journals[journal] if unconsolidated else ()):
        if isinstance(cell, Entry):
            records = (state.records[one.partition] for one in cell.slices)
            if any(record.leader == journal and record.position < sequence for record in records):
                yield sequence


def _wrongly_collected(state: State, index: int, broker: Broker, mistake: Mistake | None) -> frozenset[int]:
    record, declared = state.journal_record(index), state.declared(index)
    needed = _needed(state, index)
    match mistake:
        case Mistake.COLLECT_PAST_PROGRESS:
            record = replace(record, progress=len(state.journals[index]), ended_at=None)
        case Mistake.COLLECT_UNWITNESSED:
            declared = dict.fromkeys(declared, broker.done)
        case Mistake.COLLECT_NAMED:
            needed = _needed(state, index, named=False)
        case Mistake.COLLECT_UNCONSOLIDATED:
            needed = _needed(state, index, unconsolidated=False)
        case Mistake.COLLECT_FENCE:
            end = state.ended[index]
            return frozenset() if end is None or state.journals[index][end] is None else frozenset({end})
        case _:
            return frozenset()
    return collectable(record, broker.done, declared, needed)
