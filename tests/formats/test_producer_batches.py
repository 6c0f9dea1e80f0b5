"""A producer's kept batches: the newest five, and one for all before them, as a list of all would say."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.producer_batches import (
    MOST_BATCHES,
    REMEMBERED_BATCHES,
    ProducerBatch,
    find_published,
    is_older,
    with_batches,
)
from kafscale.protocol.record_batch import MAX_SEQUENCE, sequence_after, sequence_before

STARTS = st.sampled_from([0, 7, MAX_SEQUENCE - 9, MAX_SEQUENCE])
COUNTS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 0, 0, 0, 0, 0, 3])), max_size=20)
"""Records of each batch, and sequence numbers left out before it."""


def published(start: int, counts: list[tuple[int, int]]) -> list[ProducerBatch]:
    batches, sequence, offset = [], start, 100
    for count, gap in counts:
        first = sequence_after(sequence, gap)
        batches.append(ProducerBatch(first, sequence_after(first, count - 1), offset))
        sequence, offset = sequence_after(first, count), offset + count
    return batches


def sequences(batch: ProducerBatch) -> list[int]:
    count = sequence_before(batch.last_sequence, batch.first_sequence) + 1
    return [sequence_after(batch.first_sequence, number) for number in range(count)]


def last_run(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    run: list[ProducerBatch] = []
    for batch in batches:
        if run and batch.first_sequence != sequence_after(run[-1].last_sequence, 1):
            run = []
        run.append(batch)
    return run


@given(start=STARTS, counts=COUNTS, split=st.integers(0, 20))
def test_every_batch_of_the_run_is_known_and_nothing_else(
    start: int, counts: list[tuple[int, int]], split: int
) -> None:
    batches = published(start, counts)
    run = last_run(batches)
    kept = with_batches(with_batches((), batches[:split]), batches[split:])
    assert len(kept) <= MOST_BATCHES
    newest, older = run[-REMEMBERED_BATCHES:], run[:-REMEMBERED_BATCHES]
    assert kept[-len(newest) :] == tuple(newest)
    for batch in newest:
        assert find_published(kept, batch.first_sequence, batch.last_sequence) == batch
    stored = {sequence for batch in older for sequence in sequences(batch)}
    for back in range(-8, 60):
        first = sequence_after(start, back)
        for count in (1, 2, 5):
            asked = [sequence_after(first, n) for n in range(count)]
            assert is_older(kept, asked[0], asked[-1]) == stored.issuperset(asked)


@given(start=STARTS, counts=COUNTS, split=st.integers(0, 20))
def test_what_two_have_of_a_run_is_the_same_in_one(
    start: int, counts: list[tuple[int, int]], split: int
) -> None:
    """A checkpoint has the older ones, the record those since."""
    batches = published(start, counts)
    since = with_batches((), batches[split:])
    assert with_batches(with_batches((), batches[:split]), since) == with_batches((), batches)


def test_run_of_half_of_all_numbers_forgets_its_beginning() -> None:
    """Else a sequence number far ahead would look like one that was stored."""
    half = 1 << 30
    long = [ProducerBatch(0, half - 2, 0), ProducerBatch(half - 1, half - 1, half - 1)]
    last = [ProducerBatch(half + n, half + n, half + n) for n in range(REMEMBERED_BATCHES + 1)]
    assert with_batches((), [*long, *last[:-1]])[0] == ProducerBatch(0, half - 1, 0)
    kept = with_batches((), [*long, *last])
    assert kept == tuple(last)
    assert not is_older(kept, 0, 0)
