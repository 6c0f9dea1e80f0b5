"""Transactions in a log that is compacted: single cases, and random logs against a dictionary of committed values."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    AbortedTransaction,
    BatchKind,
    PartitionTransactions,
    TransactionEvent,
    after_events,
)
from kafscale.log.compaction.cleaned_transactions import AbortedRange, CleanedTransactions
from kafscale.log.compaction.cleaner import Cleaner, CleaningRules, CleaningTotals
from kafscale.log.compaction.offset_map import OffsetMap
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.records import Record, decode_records
from tests.log.compaction.logs_of_keys import (
    LIMIT_BYTES,
    Sent,
    batch_of,
    headers_in,
    marker_of,
    newest_values,
)
from tests.log.compaction.test_cleaner import NOW_MS, RETENTION_MS, SECRET, check_chain

LATER_MS: Final = NOW_MS + RETENTION_MS
P, Q = 7, 8


def data(offset: int, producer_id: int, *sent: tuple[bytes, bytes | None]) -> bytes:
    records = [Sent(key, value, NOW_MS) for key, value in sent]
    return batch_of(records, offset, producer=(producer_id, 0, offset), is_transactional=True)


def events_of(log: bytes) -> list[TransactionEvent]:
    found, position = [], 0
    while position < len(log):
        header = read_header(log, position)
        kind = kind_of_batch(header, memoryview(log)[position : position + header.size_bytes])
        found.append(TransactionEvent(kind, header.producer_id, header.producer_epoch, header.base_offset))
        position += header.size_bytes
    return found


def transactions_of(log: bytes) -> PartitionTransactions:
    return after_events(NO_TRANSACTIONS, events_of(log))


def committed_records(log: bytes, aborted: Sequence[AbortedTransaction]) -> list[Record]:
    """The records that a `read_committed` consumer of Kafka's hands out, by its rule (CompletedFetch)."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    skipped: set[int] = set()
    found: list[Record] = []
    position = 0
    for header in headers_in(log):
        batch = memoryview(log)[position : position + header.size_bytes]
        position += header.size_bytes
        while waiting and waiting[0].first_offset <= header.last_offset:
            skipped.add(waiting.pop(0).producer_id)
        if header.is_control:
            if header.record_count and kind_of_batch(header, batch) is BatchKind.ABORT:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += decode_records(batch, LIMIT_BYTES)
    return found


@dataclass
class Log:
    """A log that is compacted again and again, and what its broker knows of its transactions."""

    batches: bytes = b""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    now_ms: int = NOW_MS
    last_batches: dict[int, int] = field(default_factory=dict)

    def compact(self, first_dirty_offset: int = 0, end: int | None = None) -> CleaningTotals:
        """Compact what ends at `end` in bytes, all of it by default."""
        head = self.batches[:end]
        rules = CleaningRules(
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            first_dirty_offset=first_dirty_offset,
            last_batches=self.last_batches,
            opened_limit_bytes=LIMIT_BYTES,
            aborted=[
                AbortedRange(one.producer_id, one.first_offset, one.last_offset)
                for one in sorted(self.aborted, key=lambda one: one.first_offset)
            ],
        )
        one = Cleaner(OffsetMap(1 << 20, 1000, SECRET), rules)
        one.map_batches(memoryview(head))
        kept = one.clean(memoryview(head))
        rest, totals = one.end_object()
        one.again()
        assert one.clean(memoryview(head)) + one.end_object()[0] == kept + rest, "the same once more"
        self.batches = kept + rest + self.batches[len(head) :]
        self.aborted = [one for one in self.aborted if one.last_offset not in totals.gone_transactions]
        return totals

    def kinds(self) -> list[tuple[int, BatchKind]]:
        """Base offset and kind of what is left of producers' batches."""
        return [(one.offset, one.kind) for one in events_of(self.batches) if one.kind is not BatchKind.PLAIN]


def log_of(*batches: bytes) -> Log:
    whole = b"".join(batches)
    return Log(whole, list(transactions_of(whole).aborted))


def test_records_of_an_aborted_transaction_go_and_have_no_say() -> None:
    log = log_of(
        data(0, P, (b"a", b"1")),
        marker_of(1, P, commits=True),
        data(2, P, (b"a", b"2"), (b"b", b"2")),
        marker_of(4, P, commits=False),
    )
    totals = log.compact()
    assert [(one.key, one.value) for one in committed_records(log.batches, log.aborted)] == [(b"a", b"1")]
    assert totals.removed_records == 2
    # The marker and its place in the list of aborted ones stay: the records were there a moment ago.
    assert log.kinds() == [(0, BatchKind.TRANSACTIONAL), (1, BatchKind.COMMIT), (4, BatchKind.ABORT)]
    assert len(log.aborted) == 1
    check_chain(log.batches, 0, 5)


def test_a_marker_goes_after_its_records_and_its_time() -> None:
    log = log_of(data(0, P, (b"a", b"1")), marker_of(1, P, commits=False))
    log.compact()
    assert log.kinds() == [(1, BatchKind.ABORT)]
    totals = log.compact()
    (_, marker) = headers_in(log.batches)
    assert marker.has_delete_horizon
    assert marker.base_timestamp == LATER_MS
    assert kind_of_batch(marker, memoryview(log.batches)[-marker.size_bytes :]) is BatchKind.ABORT
    # Readers need not know of the transaction from now on, while the marker is still there.
    assert (totals.gone_transactions, log.aborted) == ([1], [])
    log.now_ms = LATER_MS - 1
    assert not log.compact().has_changes
    log.now_ms = LATER_MS
    assert log.compact().removed_records == 1
    assert log.kinds() == []
    check_chain(log.batches, 0, 2)


def test_a_commit_marker_stays_as_long_as_a_record() -> None:
    log = log_of(
        data(0, P, (b"a", b"1"), (b"b", b"1")),
        marker_of(2, P, commits=True),
        data(3, Q, (b"a", b"2")),
        marker_of(4, Q, commits=True),
    )
    for _ in range(3):
        log.compact()
        log.now_ms += 2 * RETENTION_MS
    assert (2, BatchKind.COMMIT) in log.kinds()
    log.batches += data(5, Q, (b"b", b"2")) + marker_of(6, Q, commits=True)
    for _ in range(3):
        log.compact()
        log.now_ms += 2 * RETENTION_MS
    assert [offset for offset, _ in log.kinds()] == [3, 4, 5, 6]


def test_the_marker_of_a_producers_epoch_stays_empty() -> None:
    """It is the only one that says which epoch is the newest (Kafka's lastRecordsOfActiveProducers)."""
    log = log_of(data(0, P, (b"a", b"1")), marker_of(1, P, commits=False, epoch=1))
    log.last_batches = {P: 1}
    for _ in range(4):
        log.compact()
        log.now_ms += 2 * RETENTION_MS
    marker = headers_in(log.batches)[-1]
    assert (marker.base_offset, marker.record_count, marker.producer_epoch) == (1, 0, 1)
    assert marker.is_control
    assert marker.is_transactional
    log.last_batches = {}
    log.compact()
    assert log.kinds() == []


def test_a_later_transaction_of_the_same_producer_is_another_one() -> None:
    log = log_of(
        data(0, P, (b"a", b"1")),
        marker_of(1, P, commits=False),
        data(2, P, (b"a", b"2")),
        marker_of(3, P, commits=True),
    )
    for _ in range(4):
        log.compact()
        log.now_ms += 2 * RETENTION_MS
    assert [(one.offset, one.value) for one in committed_records(log.batches, log.aborted)] == [(2, b"2")]
    assert log.kinds() == [(2, BatchKind.TRANSACTIONAL), (3, BatchKind.COMMIT)]


def test_a_transaction_that_ended_before_is_not_met() -> None:
    """The map begins at the dirty part, where an aborted transaction of the same producer may be over."""
    transactions = CleanedTransactions([AbortedRange(P, 0, 5), AbortedRange(Q, 3, 20)])
    assert not transactions.is_aborted(read_header(data(10, P, (b"a", b"1")), 0))
    assert transactions.is_aborted(read_header(data(11, Q, (b"a", b"1")), 0))


PRODUCERS = st.sampled_from([P, Q, None])
"""None: a record of no transaction."""
KEYS = st.sampled_from([b"a", b"b"])
STEPS = st.one_of(
    st.tuples(
        st.just("write"), PRODUCERS, st.lists(st.tuples(KEYS, st.integers(0, 99)), min_size=1, max_size=3)
    ),
    st.tuples(st.just("write"), PRODUCERS, st.lists(st.tuples(KEYS, st.none()), min_size=1, max_size=1)),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("compact"), st.integers(0, 2 * RETENTION_MS), st.booleans()),
)


class Written:
    """Writes a log at random, and remembers what was committed."""

    def __init__(self) -> None:
        self.log = Log()
        self.end_offset = 0
        self.open: dict[int, list[Record]] = {}
        self.first: dict[int, int] = {}
        self.committed: list[Record] = []
        self.first_dirty_offset = 0

    def write(self, producer_id: int | None, sent: list[tuple[bytes, int | None]]) -> None:
        values = [(key, None if value is None else b"%d" % value) for key, value in sent]
        offset = self.end_offset
        self.end_offset += len(values)
        records = [Record(offset + n, NOW_MS, key, value) for n, (key, value) in enumerate(values)]
        if producer_id is None:
            self.log.batches += batch_of([Sent(key, value, NOW_MS) for key, value in values], offset)
            self.committed += records
            return
        self.log.batches += data(offset, producer_id, *values)
        self.log.last_batches[producer_id] = offset
        self.open.setdefault(producer_id, []).extend(records)
        self.first.setdefault(producer_id, offset)

    def end(self, producer_id: int | None, commits: bool) -> None:
        if producer_id not in self.open:
            return
        assert producer_id is not None
        first, offset = self.first.pop(producer_id), self.end_offset
        self.log.batches += marker_of(offset, producer_id, commits=commits)
        self.end_offset += 1
        records = self.open.pop(producer_id)
        if commits:
            self.committed = sorted((*self.committed, *records), key=lambda one: one.offset)
        else:
            stable = min(self.first.values(), default=offset + 1)
            self.log.aborted.append(AbortedTransaction(producer_id, first, offset, stable))

    def compact(self, passed_ms: int, knows_producers: bool) -> None:
        self.log.now_ms += passed_ms
        if not knows_producers:
            self.log.last_batches.clear()
        stable = min(self.first.values(), default=self.end_offset)
        end = next_offset = 0
        for header in headers_in(self.log.batches):
            if header.last_offset >= stable:
                break
            end, next_offset = end + header.size_bytes, header.last_offset + 1
        self.log.compact(min(self.first_dirty_offset, next_offset), end)
        self.first_dirty_offset = max(self.first_dirty_offset, next_offset)

    def check(self) -> None:
        stable = min(self.first.values(), default=self.end_offset)
        found = [one for one in committed_records(self.log.batches, self.log.aborted) if one.offset < stable]
        visible = [one for one in self.committed if one.offset < stable]
        assert newest_values(found) == newest_values(visible)
        assert {one.offset for one in found} <= {one.offset for one in visible}, "no aborted record"
        check_chain(self.log.batches, 0, self.end_offset)
        rebuilt = transactions_of(self.log.batches)
        assert {one.producer_id for one in rebuilt.open} == set(self.open), "every open one, and no other"
        # A rebuild from the bucket hides what the broker hides: it may lack those without records alone.
        assert committed_records(self.log.batches, rebuilt.aborted) == committed_records(
            self.log.batches, self.log.aborted
        )


@given(steps=st.lists(STEPS, min_size=8, max_size=40))
def test_committed_values_of_a_compacted_log_equal_a_dictionary(
    steps: list[tuple[str, object, object]],
) -> None:
    written = Written()
    for name, first, second in steps:
        getattr(written, name)(first, second)
        written.check()
    for producer_id in tuple(written.open):
        written.end(producer_id, commits=True)
    for _ in range(4):
        written.compact(2 * RETENTION_MS, knows_producers=False)
        written.check()
    assert not written.log.aborted or any(kind is BatchKind.ABORT for _, kind in written.log.kinds())
