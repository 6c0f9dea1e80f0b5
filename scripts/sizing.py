"""The requests, the size of etcd and the memory of a load: the figures of docs/sizing.md. Pure."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kafscale.formats.partition_record import (
    PartitionRecord,
    ProducerRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.producer_batches import MOST_BATCHES, ProducerBatch
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.checkpointer import SUPERSEDED_GRACE_MS
from kafscale.log.journal.progress import LEAST_INTERVAL_SEC
from kafscale.log.life import segment_life
from kafscale.log.life.gatherer import MOST_SLICES, OBJECT_BYTES
from kafscale.log.life.merge_planner import MergeLimits, merged_size_bytes, plan_merge
from kafscale.log.life.merge_windows import WINDOW_BYTES
from kafscale.log.life.seal_planner import GATHER_FROM
from kafscale.log.life.source_reads import PIECE_BYTES
from kafscale.log.log_parts import flush_policy
from kafscale.log.partition_log import CHECKPOINT_SEGMENTS
from kafscale.log.writing.conditional_put import HEDGED_BYTES
from kafscale.objects.bucket.multipart import PART_BYTES
from kafscale.objects.bucket.store import MULTIPART_ABOVE_BYTES
from kafscale.objects.hedging import USUAL_PERCENT
from kafscale.ops.prices import DAYS_PER_MONTH, EXPRESS_ONE_ZONE, GB_BYTES, Operation, Prices
from kafscale.settings.broker import Settings
from kafscale.tools.cost.intervals import entries_per_sec

PUTS_PER_ENTRY: Final = 1
"""Without the hedged requests beside slow ones: see `puts_per_entry`."""

PUTS_PER_SEGMENT: Final = 2
"""A sealed segment and its index."""

PUTS_PER_MERGE: Final = 3
"""The merged segment, its index and a checkpoint; up to 64 MiB, see `MULTIPART_ABOVE_BYTES`."""

LISTS_PER_MERGE: Final = 1
"""The search for checkpoints that are no longer needed, at most one in `SUPERSEDED_GRACE_MS`."""

GETS_PER_LARGE_MERGE: Final = 1
"""The newest source's header, beside the sources themselves: one for each, and for every `PIECE_BYTES`.

Up to `WINDOW_BYTES` there is only one GET for each source.
"""

SECONDS_PER_DAY: Final = 86_400
LISTED_AT_ONCE: Final = 1_000
PUBLICATIONS_AT_ONCE: Final = 64
"""Records that a transaction of etcd writes at most, when many partitions are behind."""

DEFAULTS: Final = Settings()
SEAL_INTERVAL_SEC: Final = segment_life._SEAL_IN_BUCKET_MS / 1000
FLUSHES_PER_SEC_ON_A_BUCKET: Final = flush_policy(Settings(s3_bucket="records")).flushes_per_sec
"""KAFSCALE_FLUSHES_PER_SEC unless it is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A cluster. `partitions`: those that are written to, each so often, with so many bytes.

    `following`: how many brokers read the journals of all others, since consumers of their partitions read there.
    """

    partitions: int
    batches_per_sec: float = 10.0
    bytes_per_sec: float = 1_000.0
    brokers: int = 3
    flush_interval_ms: int = DEFAULTS.flush_interval_ms
    flushes_per_sec: float = FLUSHES_PER_SEC_ON_A_BUCKET
    following: int = 0
    hedged_percent: int = USUAL_PERCENT

    @property
    def broker_bytes_per_sec(self) -> float:
        """Bytes that one broker takes."""
        return self.partitions * self.bytes_per_sec / self.brokers

    @property
    def entries_per_sec(self) -> float:
        """Entries of all brokers."""
        batches = self.partitions * self.batches_per_sec / self.brokers
        return self.brokers * entries_per_sec(
            batches, self.broker_bytes_per_sec, self.flush_interval_ms / 1000, self.flushes_per_sec
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Requests of a cluster in a day, by what they are for; LIST counts as a PUT, DELETE costs nothing.

    `transactions`: writes of partitions' records, and of journals' progress, in etcd.
    """

    entry_puts: float
    entry_gets: float
    gathered_puts: float
    segment_puts: float
    merging_puts: float
    merging_gets: float
    listing_puts: float
    transactions: float

    @property
    def puts(self) -> float:
        """All that are billed as PUT."""
        return (
            self.entry_puts + self.gathered_puts + self.segment_puts + self.merging_puts + self.listing_puts
        )

    @property
    def gets(self) -> float:
        """All that are billed as GET, without consumers' reads of old records."""
        return self.entry_gets + self.merging_gets

    def dollars_a_month(self, prices: Prices, journals: Prices | None = None) -> float:
        """The price of the requests. `journals`: of the journal bucket, if there is one."""
        of_journals = journals or prices
        puts = (self.puts - self.entry_puts) * prices.of_request(Operation.PUT_OBJECT)
        puts += self.entry_puts * of_journals.of_request(Operation.PUT_OBJECT)
        gets = self.merging_gets * prices.of_request(Operation.GET_OBJECT)
        gets += self.entry_gets * of_journals.of_request(Operation.GET_OBJECT)
        return (puts + gets) * DAYS_PER_MONTH


def puts_per_entry(entry_bytes: float, hedged_percent: int = USUAL_PERCENT) -> float:
    """An entry, and the hedged request beside a slow small one.

    Fewer where answers take less than the 5 ms that are waited at least, or where nearly all are equally late. On
    the embedded store nothing is sent twice: `hedged_percent` 0.
    """
    return PUTS_PER_ENTRY + (hedged_percent / 100 if entry_bytes <= HEDGED_BYTES else 0)


def look_sec(load: Load) -> float:
    """How often a broker seals: at its interval, or when half of its cache was published since."""
    full_sec = DEFAULTS.cache_size_bytes / 2 / load.broker_bytes_per_sec if load.bytes_per_sec else math.inf
    return min(SEAL_INTERVAL_SEC, full_sec)


def seconds_to_seal(load: Load) -> float:
    """How long one partition gathers before its records become a segment: a whole number of looks."""
    look = look_sec(load)
    worthwhile_sec = segment_life.WORTHWHILE_BYTES / load.bytes_per_sec if load.bytes_per_sec else math.inf
    return math.ceil(min(worthwhile_sec, DEFAULTS.seal_max_age_ms / 1000) / look) * look


def gathered_per_look(load: Load) -> float:
    """Gathered objects of one broker and look: of partitions that had several slices and are not sealed."""
    look, seal_sec = look_sec(load), seconds_to_seal(load)
    slices = min(load.batches_per_sec, load.entries_per_sec / load.brokers) * look
    if seal_sec <= look or slices < GATHER_FROM:
        return 0.0
    share = 1 - look / seal_sec  # the others are sealed
    partitions = load.partitions / load.brokers * share
    size_bytes = load.broker_bytes_per_sec * look * share
    return max(1.0, math.ceil(size_bytes / OBJECT_BYTES), math.ceil(partitions / MOST_SLICES))


def calls_in_a_day(load: Load, *, merges: bool = True) -> Calls:
    """Requests of a cluster that is written to all day, without consumers' reads, which are from memory."""
    entries = load.entries_per_sec * SECONDS_PER_DAY
    if not entries:
        return Calls(
            entry_puts=0, entry_gets=0, gathered_puts=0, segment_puts=0, merging_puts=0, merging_gets=0,
            listing_puts=0, transactions=0,
        )  # fmt: skip
    entry_bytes = load.partitions * load.bytes_per_sec * SECONDS_PER_DAY / entries
    seal_sec = max(seconds_to_seal(load), 1 / load.batches_per_sec)
    segments = load.partitions * SECONDS_PER_DAY / seal_sec
    segment_bytes = round(load.bytes_per_sec * seal_sec) + HEADER_SIZE + FOOTER_SIZE
    merging = merging_in_a_day(1 / seal_sec, segment_bytes) if merges else Merging()
    looks = SECONDS_PER_DAY / look_sec(load)
    written_records = load.partitions * min(looks, load.batches_per_sec * SECONDS_PER_DAY)
    collections = SECONDS_PER_DAY / DEFAULTS.garbage_check_interval_sec
    return Calls(
        entry_puts=entries * puts_per_entry(entry_bytes, load.hedged_percent),
        entry_gets=entries / load.brokers * (load.brokers - 1) * load.following,
        gathered_puts=load.brokers * looks * gathered_per_look(load),
        segment_puts=segments * PUTS_PER_SEGMENT,
        merging_puts=load.partitions * merging.puts,
        merging_gets=load.partitions * merging.gets,
        # Each partition's objects, and what lies in journals, a thousand at a time.
        listing_puts=collections * (load.partitions + load.brokers + entries / collections / LISTED_AT_ONCE),
        transactions=written_records / PUBLICATIONS_AT_ONCE
        + load.brokers * SECONDS_PER_DAY * min(1 / LEAST_INTERVAL_SEC, load.entries_per_sec / load.brokers),
    )


@dataclass(slots=True)
class Merging:
    """The requests of merging one partition."""

    merges: int = 0
    puts: int = 0
    gets: int = 0
    listed_ms: int | None = None

    def count(self, sources: tuple[SegmentReference, ...], now_ms: int = 0) -> int:
        """Count one merge; returns the size of the result."""
        size_bytes = merged_size_bytes(sources)
        self.merges += 1
        self.puts += PUTS_PER_MERGE
        if self.listed_ms is None or now_ms - self.listed_ms >= SUPERSEDED_GRACE_MS:
            self.puts += LISTS_PER_MERGE
            self.listed_ms = now_ms
        if size_bytes > MULTIPART_ABOVE_BYTES:
            self.puts += math.ceil(size_bytes / PART_BYTES) + 1  # instead of one: start, parts, completion
        if sum(one.size_bytes for one in sources) <= WINDOW_BYTES:
            self.gets += len(sources)
        else:
            pieces = sum(math.ceil(one.size_bytes / PIECE_BYTES) for one in sources)
            self.gets += GETS_PER_LARGE_MERGE + pieces
        return size_bytes


@functools.cache
def merging_in_a_day(flushes_a_sec: float, segment_bytes: int, settings: Settings = DEFAULTS) -> Merging:
    """Merging by the planner, called as often as a broker calls it, for a day."""
    limits = MergeLimits(
        target_bytes=settings.merge_target_bytes,
        min_segments=settings.merge_min_segments,
        max_span_ms=settings.retention_ms // 10,
    )
    found, references, flushed = Merging(), list[SegmentReference](), 0
    for now_ms in range(0, SECONDS_PER_DAY * 1000, settings.merge_check_interval_ms):
        until = int(flushes_a_sec * now_ms / 1000)
        references += [_reference(offset, offset, segment_bytes, now_ms) for offset in range(flushed, until)]
        flushed = until
        while sources := plan_merge(references, limits):
            first, last = sources[0].base_offset, sources[-1].last_offset
            merged = _reference(first, last, found.count(sources, now_ms), sources[-1].max_timestamp_ms)
            before = next(i for i, one in enumerate(references) if one.base_offset == first)
            references[before : before + len(sources)] = [merged]
    return found


def _reference(first: int, last: int, size_bytes: int, timestamp_ms: int) -> SegmentReference:
    return SegmentReference(
        base_offset=first,
        last_offset=last,
        record_count=last - first + 1,
        leader_epoch=1,
        size_bytes=size_bytes,
        max_timestamp_ms=timestamp_ms,
    )


def record_bytes(segments: int, producers: int = 0) -> int:
    """The size of a partition's record in etcd, which every publication writes again."""
    batch = ProducerBatch(0, 0, 0)
    record = PartitionRecord(
        leader_epoch=1,
        segments=tuple(_reference(offset, offset, 1000, 0) for offset in range(segments)),
        producers=tuple(
            ProducerRecord(
                producer_id=one, producer_epoch=0, last_timestamp_ms=0, batches=(batch,) * MOST_BATCHES
            )
            for one in range(producers)
        ),
    )
    return len(encode_partition_record(record))


def etcd_bytes(
    partitions: int, publications_per_sec: float, retention_sec: float, bytes_a_record: int
) -> float:
    """The size of etcd's file: the records, and their old revisions until compaction.

    etcd compacts once in a retention and keeps one: up to two are there.
    """
    return partitions * bytes_a_record + publications_per_sec * 2 * retention_sec * bytes_a_record


def broker_memory_bytes(settings: Settings = DEFAULTS) -> int:
    """A broker's largest memory by its settings, and 200 MiB for Python, libraries and requests in flight."""
    return (
        settings.cache_size_bytes
        + settings.index_cache_size_bytes
        + settings.buffer_bytes
        + settings.group_memory_bytes
        + 200 * 1024 * 1024
    )


# --- the tables


def request_rows() -> Iterator[tuple[str, ...]]:
    """A cluster of three brokers with 1,000 partitions, by interval and budget."""
    for interval_ms, budget in ((100, 10), (500, 4), (500, 2), (1000, 1), (2000, 0), (5000, 0), (10_000, 0)):
        load = Load(
            partitions=1000, batches_per_sec=1, bytes_per_sec=100, flush_interval_ms=interval_ms,
            flushes_per_sec=budget,
        )  # fmt: skip
        followed = replace(load, following=load.brokers)
        yield (
            f"{interval_ms:,}",
            f"{budget:g}",
            f"{load.entries_per_sec:,.1f}",
            *_dollars(calls_in_a_day(load)),
            f"{calls_in_a_day(followed).dollars_a_month(Prices()):,.0f}",
            f"{calls_in_a_day(load).dollars_a_month(Prices(), EXPRESS_ONE_ZONE):,.0f}",
        )


def _dollars(calls: Calls) -> tuple[str, ...]:
    """Of entries, of sealing, of the rest, and all."""
    put, get = (Prices().of_request(one) for one in (Operation.PUT_OBJECT, Operation.GET_OBJECT))
    entries = calls.entry_puts * put + calls.entry_gets * get
    sealing = (calls.gathered_puts + calls.segment_puts) * put
    rest = (calls.merging_puts + calls.listing_puts) * put + calls.merging_gets * get
    parts = (entries, sealing, rest, entries + sealing + rest)
    return tuple(f"{part * DAYS_PER_MONTH:,.2f}" for part in parts)


def rate_rows() -> Iterator[tuple[str, ...]]:
    """One partition more, in a cluster that flushes anyway, by the interval between its writes of 1,000 bytes."""
    for label, batches_per_sec in (
        ("10 times a second", 10.0),
        ("every second", 1.0),
        ("every 10 seconds", 0.1),
        ("every minute", 1 / 60),
        ("every hour", 1 / 3600),
    ):
        load = Load(
            partitions=1000, batches_per_sec=batches_per_sec, bytes_per_sec=1000 * batches_per_sec, brokers=1
        )
        calls = calls_in_a_day(load)
        own = calls.segment_puts + calls.merging_puts + calls.listing_puts
        dollars = own * Prices().of_request(Operation.PUT_OBJECT)
        dollars += calls.merging_gets * Prices().of_request(Operation.GET_OBJECT)
        yield (
            label,
            f"{calls.segment_puts / PUTS_PER_SEGMENT / load.partitions:,.0f}",
            f"{own / load.partitions:,.0f}",
            f"{dollars * DAYS_PER_MONTH / load.partitions:,.3f}",
        )


def cluster_rows() -> Iterator[tuple[str, ...]]:
    """Whole clusters for a month: busy partitions, each written to ten times a second."""
    prices = Prices()
    for partitions, mb_per_sec, brokers in (
        (10, 1, 3), (100, 10, 3), (1000, 1, 3), (1000, 10, 3), (1000, 100, 3), (10_000, 100, 10), (10_000, 1000, 12),
    ):  # fmt: skip
        load = Load(partitions=partitions, bytes_per_sec=mb_per_sec * 1e6 / partitions, brokers=brokers)
        calls = calls_in_a_day(load)
        stored = mb_per_sec * 1e6 * SECONDS_PER_DAY * 7
        yield (
            f"{partitions:,}",
            f"{mb_per_sec:,}",
            f"{brokers}",
            f"{load.entries_per_sec:,.0f}",
            *(f"{float(part.replace(',', '')):,.0f}" for part in _dollars(calls)),
            f"{stored / GB_BYTES:,.0f}",
            f"{prices.of_stored(stored):,.0f}",
        )


def etcd_rows() -> Iterator[tuple[str, ...]]:
    """etcd's file by partitions and publications, for three lengths of its history."""
    usual = record_bytes(CHECKPOINT_SEGMENTS // 2)
    for partitions, flush_rate in ((100, 2), (1000, 17), (10_000, 167), (100_000, 1667)):
        sizes = (etcd_bytes(partitions, flush_rate, minutes * 60, usual) for minutes in (10, 2, 1))
        yield f"{partitions:,}", f"{flush_rate:,}", *(f"{size / 2**30:,.2f}" for size in sizes)


def record_rows() -> Iterator[tuple[str, ...]]:
    """A partition's record by its content."""
    for segments, producers in (
        (0, 0),
        (CHECKPOINT_SEGMENTS // 2, 0),
        (CHECKPOINT_SEGMENTS, 0),
        (64, 10),
        (128, 100),
    ):
        yield f"{segments}", f"{producers}", f"{record_bytes(segments, producers):,}"


def memory_rows() -> Iterator[tuple[str, str]]:
    """A broker's memory by setting."""
    for name, size_bytes in (
        ("KAFSCALE_CACHE_SIZE", DEFAULTS.cache_size_bytes),
        ("KAFSCALE_INDEX_CACHE_SIZE", DEFAULTS.index_cache_size_bytes),
        ("KAFSCALE_BUFFER_BYTES", DEFAULTS.buffer_bytes),
        ("KAFSCALE_GROUP_MEMORY_BYTES", DEFAULTS.group_memory_bytes),
    ):
        yield f"`{name}`", f"{size_bytes / 2**20:,.0f}"
    yield "Python, libraries, requests in flight", "200"
    yield "**together**", f"**{broker_memory_bytes() / 2**20:,.0f}**"
