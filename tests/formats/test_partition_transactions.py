"""Open and aborted transactions of a partition: as a plain walk over its batches finds them."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    BatchKind,
    OpenTransaction,
    TransactionEvent,
    after_events,
    from_log_start,
    without_aborted_below,
)


@st.composite
def logs(draw: st.DrawFn) -> list[TransactionEvent]:
    """The batches of four producers, each of some records."""
    kinds = draw(
        st.lists(st.tuples(st.sampled_from(BatchKind), st.integers(0, 3), st.integers(1, 3)), max_size=40)
    )
    offsets = accumulate((count for _, _, count in kinds), initial=0)
    return [
        TransactionEvent(kind, producer, 0, offset)
        for (kind, producer, _), offset in zip(kinds, offsets, strict=False)
    ]


def plain_walk(log: list[TransactionEvent]) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    opened: dict[int, int] = {}
    aborted = []
    for event in log:
        if event.kind is BatchKind.TRANSACTIONAL:
            opened.setdefault(event.producer_id, event.offset)
        elif event.kind.is_marker and event.producer_id in opened:
            first = opened.pop(event.producer_id)
            if event.kind is BatchKind.ABORT:
                aborted.append((event.producer_id, first, event.offset))
    return opened, aborted


@given(logs(), st.data())
def test_the_state_is_that_of_a_plain_walk(log: list[TransactionEvent], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    state = after_events(after_events(NO_TRANSACTIONS, log[:cut]), log[cut:])
    opened, aborted = plain_walk(log)
    assert {one.producer_id: one.first_offset for one in state.open} == opened
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in state.aborted] == aborted
    assert list(state.open) == sorted(state.open, key=lambda one: one.first_offset)
    assert state.last_stable_offset(0, 1000) == min(opened.values(), default=1000)


@given(logs(), st.integers(0, 90), st.integers(0, 90))
def test_what_overlaps_a_read_is_found(log: list[TransactionEvent], first: int, end: int) -> None:
    """The early end of the search leaves nothing out."""
    _, aborted = plain_walk(log)
    state = after_events(NO_TRANSACTIONS, log)
    found = AbortedTransactions(state.aborted).between(first, end)
    wanted = sorted((one for one in aborted if one[2] >= first and one[1] < end), key=lambda one: one[1])
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in found] == wanted


@given(logs(), st.data())
def test_a_checkpoint_and_a_record_have_all(log: list[TransactionEvent], data: st.DataObject) -> None:
    """The checkpoint has what ended before it, the record what ended later. Nothing is there twice."""
    cut = data.draw(st.integers(0, len(log)))
    offset = log[cut].offset if cut < len(log) else 1000
    before = after_events(NO_TRANSACTIONS, log[:cut])
    record = without_aborted_below(after_events(NO_TRANSACTIONS, log), offset)
    joined = AbortedTransactions(before.aborted)
    joined.add_newer(after_events(before, log[cut:]).aborted)
    assert tuple(joined) == after_events(NO_TRANSACTIONS, log).aborted
    joined = AbortedTransactions(before.aborted)
    joined.add_newer(record.aborted)
    assert tuple(joined) == after_events(NO_TRANSACTIONS, log).aborted


def test_what_ended_below_the_log_start_is_dropped() -> None:
    aborted = AbortedTransactions(
        [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 3, 9, 10), AbortedTransaction(1, 20, 21, 22)]
    )
    aborted.drop_below(9)
    assert [one.last_offset for one in aborted] == [9, 21]


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    state = after_events(NO_TRANSACTIONS, [TransactionEvent(BatchKind.TRANSACTIONAL, 7, 2, 3)])
    assert state.open == (OpenTransaction(7, 2, 3),)
    assert (state.last_stable_offset(0, 10), state.last_stable_offset(5, 10)) == (3, 5)


@given(logs(), st.integers(0, 100), st.integers(0, 100))
def test_those_below_the_log_start_are_forgotten(
    log: list[TransactionEvent], start: int, aborted_from: int
) -> None:
    whole = after_events(NO_TRANSACTIONS, log)
    state = from_log_start(without_aborted_below(whole, aborted_from), start)
    assert state.open == whole.open, "as in Kafka, whatever is left of them"
    known = [one for one in whole.aborted if one.last_offset >= max(start, aborted_from)]
    assert list(state.aborted) == (known if whole.aborted else [])
    # A reader looks into the checkpoint for those below `aborted_from` alone, and none of these is needed.
    assert state.aborted_from == 0 or state.aborted_from > start


@given(logs(), st.sets(st.integers(0, 80)))
def test_single_ones_are_removed(log: list[TransactionEvent], last_offsets: set[int]) -> None:
    aborted = after_events(NO_TRANSACTIONS, log).aborted
    known = AbortedTransactions(aborted)
    copied = known.copy()
    known.remove(last_offsets)
    assert tuple(copied) == aborted
    kept = [one for one in aborted if one.last_offset not in last_offsets]
    assert list(known) == kept
    assert known.between(0, 1000) == sorted(kept, key=lambda one: one.first_offset)
