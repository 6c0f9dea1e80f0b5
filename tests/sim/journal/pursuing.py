"""The steps by which a broker takes a partition over: end the old leader's journal, replay it, claim."""

from collections.abc import Iterator

from kafscale.journal.ending import (
    Ended,
    Leap,
    Look,
    Note,
    Probe,
    begun,
    found_fence,
    leapt,
    leapt_too_short,
    looked,
    note_failed,
    noted,
    passed,
)
from tests.sim.journal.bucket import ViolationError, replayed, settled, slices_of
from tests.sim.journal.leading import Step, in_flight, with_broker, with_cell
from tests.sim.journal.mistakes import Mistake
from tests.sim.journal.states import (
    FENCE,
    SEALED,
    Broker,
    Claim,
    Entry,
    Kept,
    Lead,
    Pursuit,
    Record,
    State,
    replaced,
)

UNCOMPARED = (Mistake.NO_COMPARE, Mistake.STALE_REPLAY)


def steps(state: State, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of all brokers that pursue a partition."""
    for index, broker in enumerate(state.brokers):
        if broker.is_over:
            continue
        if broker.claim is not None:
            yield from _hears_of_claim(state, index, broker, broker.claim, mistake)
        elif broker.pursuit is None:
            for partition, lead in enumerate(broker.leads):
                if lead is None and not in_flight(broker, partition):
                    yield from _begins(state, index, broker, partition, mistake)
        else:
            match broker.pursuit.ending:
                case Leap():
                    yield from _leaps(state, index, broker, broker.pursuit, broker.pursuit.ending)
                case Probe():
                    yield from _probes(state, index, broker, broker.pursuit, broker.pursuit.ending, mistake)
                case Look():
                    yield from _looks(state, index, broker, broker.pursuit, broker.pursuit.ending, mistake)
                case Note():
                    yield from _notes(state, index, broker, broker.pursuit, broker.pursuit.ending, mistake)
                case Ended():
                    yield from _replays(state, index, broker, broker.pursuit, broker.pursuit.ending, mistake)


def _begins(
    state: State, index: int, broker: Broker, partition: int, mistake: Mistake | None
) -> Iterator[Step]:
    record = state.records[partition]
    if record.leader is None:
        yield _claims(state, index, broker, partition, record, record.log, mistake)
    elif record.leader != index:
        target = record.leader
        if mistake is Mistake.NO_FENCE:
            log = replayed(state, partition, record, len(state.journals[target]))
            assert log is not None
            yield _claims(state, index, broker, partition, record, log, mistake)
            return
        pursuit = Pursuit(partition, target, begun(state.journal_record(target), leap=1), record)
        yield f"{index} pursues {target} for {partition}", _on(state, index, broker, pursuit)


def _on(state: State, index: int, broker: Broker, pursuit: Pursuit | None) -> State:
    return with_broker(state, index, broker._replace(pursuit=pursuit))


def _leaps(state: State, index: int, broker: Broker, pursuit: Pursuit, step: Leap) -> Iterator[Step]:
    target = pursuit.journal
    if step.to >= len(state.journals[target]):
        # The row of cells ends there, as if a fence were behind it.
        after = pursuit._replace(ending=leapt(step))
        yield f"{index} leaps over {target}", _on(state, index, broker, after)
        return
    found = state.journals[target][step.to]
    if isinstance(found, Entry):
        after = pursuit._replace(ending=leapt_too_short(step))
        yield f"{index} leaps too short, to {target}/{step.to}", _on(state, index, broker, after)
        return
    out = with_cell(state, target, step.to, FENCE)
    out = out._replace(flying=out.flying | {(target, step.to, FENCE)})
    after = pursuit._replace(ending=leapt(step))
    yield f"{index} leaps to {target}/{step.to}", _on(out, index, broker, after)


def _probes(
    state: State, index: int, broker: Broker, pursuit: Pursuit, step: Probe, mistake: Mistake | None
) -> Iterator[Step]:
    target, sequence = pursuit.journal, step.sequence
    if sequence >= len(state.journals[target]):
        return
    found = state.journals[target][sequence]
    fenced = pursuit._replace(ending=found_fence(step))
    if found is FENCE:
        yield f"{index} finds the fence {target}/{sequence}", _on(state, index, broker, fenced)
    elif found is None or mistake is Mistake.FENCE_BY_OVERWRITE:
        out = with_cell(state, target, sequence, FENCE)
        out = out._replace(flying=out.flying | {(target, sequence, FENCE)})
        yield f"{index} fences {target} at {sequence}", _on(out, index, broker, fenced)
    else:
        after = pursuit._replace(ending=passed(step))
        yield f"{index} passes {target}/{sequence}", _on(state, index, broker, after)


def _looks(
    state: State, index: int, broker: Broker, pursuit: Pursuit, step: Look, mistake: Mistake | None
) -> Iterator[Step]:
    ending = looked(step, state.journal_record(pursuit.journal))
    if mistake is Mistake.NO_SECOND_LOOK:
        ending = Note(step.sequence)
    yield f"{index} looks again: {ending}", _on(state, index, broker, pursuit._replace(ending=ending))


def _notes(
    state: State, index: int, broker: Broker, pursuit: Pursuit, step: Note, mistake: Mistake | None
) -> Iterator[Step]:
    """A compare of the record that was read last: it can have a newer progress, or have ended."""
    target = pursuit.journal
    record = state.journal_record(target)
    ending = note_failed(step, record)
    if ending == step or mistake is Mistake.NO_SECOND_LOOK:
        out = state._replace(ended=replaced(state.ended, target, step.sequence))
        after = pursuit._replace(ending=noted(step))
        yield f"{index} notes that {target} ended at {step.sequence}", _on(out, index, broker, after)
    else:
        yield f"{index} looks on: {ending}", _on(state, index, broker, pursuit._replace(ending=ending))


def _replays(
    state: State, index: int, broker: Broker, pursuit: Pursuit, step: Ended, mistake: Mistake | None
) -> Iterator[Step]:
    partition, target, end = pursuit.partition, pursuit.journal, step.sequence
    if mistake is Mistake.STALE_REPLAY:
        log = pursuit.before.log
        for sequence in range(pursuit.before.position + 1, end):
            cell = state.journals[target][sequence]
            if isinstance(cell, Entry):
                log = (*log, *(Kept(one.value, SEALED) for one in slices_of(cell, partition)))
        yield _claims(state, index, broker, partition, pursuit.before, log, mistake)
        return
    record = state.records[partition]
    if record.leader != target:
        yield f"{index} gives {partition} up", _on(state, index, broker, None)
        return
    for sequence in range(max(state.progress[target], record.position) + 1, end):
        if not isinstance(state.journals[target][sequence], Entry):
            raise ViolationError(f"{target}/{sequence} is gone, and nobody said that it was committed")
    found = replayed(state, partition, record, end)
    assert found is not None
    yield _claims(state, index, broker, partition, record, found, mistake)


def _claims(
    state: State,
    index: int,
    broker: Broker,
    partition: int,
    record: Record,
    log: tuple[Kept, ...],
    mistake: Mistake | None,
) -> Step:
    position = -1 if mistake is Mistake.CLAIM_FROM_THE_START else broker.next_sequence - 1
    new = Record(index, settled(state, partition, log), position, record.revision + 1)
    after = broker._replace(pursuit=None, claim=Claim(partition, record.revision, new))
    if mistake is Mistake.LEAD_BEFORE_CLAIM:
        after = after._replace(leads=replaced(broker.leads, partition, Lead(new, new.log)))
    return f"{index} claims {partition}", with_broker(state, index, after)


def _hears_of_claim(
    state: State, index: int, broker: Broker, claim: Claim, mistake: Mistake | None
) -> Iterator[Step]:
    now = state.records[claim.partition]
    if now.revision == claim.compared or mistake in UNCOMPARED:
        record = claim.record._replace(revision=max(claim.record.revision, now.revision + 1))
        leads = replaced(broker.leads, claim.partition, Lead(record, record.log))
        out = with_broker(state, index, broker._replace(leads=leads, claim=None))
        records = replaced(state.records, claim.partition, record)
        yield f"{index} leads {claim.partition}: {record}", out._replace(records=records)
    else:
        lost = broker._replace(leads=replaced(broker.leads, claim.partition, None), claim=None)
        yield f"{index} was not the first", with_broker(state, index, lost)
