"""The requests, the size of etcd and the memory of a load: the figures of docs/sizing.md. Pure."""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kafscale.formats.partition_record import (
    PartitionRecord,
    ProducerBatch,
    ProducerRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.life.merge_planner import MergeLimits, merged_size_bytes, plan_merge
from kafscale.log.life.segment_merge import PIECE_BYTES
from kafscale.log.partition_log import CHECKPOINT_SEGMENTS
from kafscale.log.writing.conditional_put import HEDGED_BYTES
from kafscale.objects.bucket.multipart import PART_BYTES
from kafscale.objects.bucket.store import MULTIPART_ABOVE_BYTES
from kafscale.settings.broker import Settings

PUTS_PER_FLUSH: Final = 2
"""The segment and its index, without the hedged requests beside slow ones: see `puts_per_flush`."""

PUTS_PER_MERGE: Final = 3
"""The merged segment, its index and a checkpoint; up to 64 MiB, see `MULTIPART_ABOVE_BYTES`."""

LISTS_PER_MERGE: Final = 1
"""The search for checkpoints that are no longer needed."""

GETS_PER_MERGE: Final = 1
"""The newest source's header, beside the sources themselves: one for each, and for every `PIECE_BYTES`."""

SECONDS_PER_DAY: Final = 86_400
DAYS_PER_MONTH: Final = 30

DEFAULTS: Final = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars; those of Amazon S3 Standard in us-east-1 in 2026, to be replaced by your own."""

    per_million_puts: float = 5.00
    per_million_gets: float = 0.40
    per_gb_month: float = 0.023


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Requests of one partition in a day. `puts`: all that are billed as such, LIST included."""

    flushes: float
    puts: float
    gets: float
    transactions: float

    def dollars_a_month(self, prices: Prices) -> float:
        """The price of the requests."""
        millions = self.puts / 1e6 * prices.per_million_puts + self.gets / 1e6 * prices.per_million_gets
        return millions * DAYS_PER_MONTH


def flushes_per_sec(
    batches_per_sec: float,
    bytes_per_sec: float,
    *,
    flush_interval_ms: int = DEFAULTS.flush_interval_ms,
    segment_bytes: int = DEFAULTS.segment_bytes,
) -> float:
    """One partition whose batches come one after the other.

    A flush begins when the oldest record is as old as the interval, or the buffer as large as a segment. After it
    the buffer is empty until the next batch comes.
    """
    if batches_per_sec <= 0:
        return 0.0
    by_time = 1 / (flush_interval_ms / 1000 + 1 / batches_per_sec)
    return max(by_time, bytes_per_sec / segment_bytes)


def puts_per_flush(segment_bytes: float, hedged_percent: int = DEFAULTS.s3_hedged_puts_percent) -> float:
    """The segment, its index, and the hedged requests beside the slowest small ones.

    Fewer where answers take less than the 5 ms that are waited at least, or where nearly all are equally late. On
    the embedded store nothing is sent twice: `hedged_percent` 0.
    """
    hedged = 2 if segment_bytes <= HEDGED_BYTES else 1  # an index is always small
    return PUTS_PER_FLUSH + hedged * hedged_percent / 100


def calls_in_a_day(
    batches_per_sec: float,
    bytes_per_sec: float,
    *,
    flush_interval_ms: int = DEFAULTS.flush_interval_ms,
    merges: bool = True,
    hedged_percent: int = DEFAULTS.s3_hedged_puts_percent,
) -> Calls:
    """Requests of one partition that is written to all day, without consumers' reads, which are from memory."""
    a_second = flushes_per_sec(batches_per_sec, bytes_per_sec, flush_interval_ms=flush_interval_ms)
    flushes = a_second * SECONDS_PER_DAY
    if flushes == 0:
        return Calls(flushes=0, puts=0, gets=0, transactions=0)
    segment_bytes = round(bytes_per_sec / a_second) + HEADER_SIZE + FOOTER_SIZE
    puts = flushes * puts_per_flush(segment_bytes, hedged_percent)
    if not merges:
        checkpoints = flushes / CHECKPOINT_SEGMENTS
        return Calls(flushes=flushes, puts=puts + 2 * checkpoints, gets=0, transactions=flushes)
    merging = merging_in_a_day(a_second, segment_bytes)
    return Calls(
        flushes=flushes,
        puts=puts + merging.puts,
        gets=merging.gets,
        transactions=flushes + merging.merges,
    )


@dataclass(slots=True)
class Merging:
    """The requests of merging one partition."""

    merges: int = 0
    puts: int = 0
    gets: int = 0

    def count(self, sources: tuple[SegmentReference, ...]) -> int:
        """Count one merge; returns the size of the result."""
        size_bytes = merged_size_bytes(sources)
        self.merges += 1
        self.puts += PUTS_PER_MERGE + LISTS_PER_MERGE
        if size_bytes > MULTIPART_ABOVE_BYTES:
            self.puts += math.ceil(size_bytes / PART_BYTES) + 1  # instead of one: start, parts, completion
        self.gets += GETS_PER_MERGE + sum(math.ceil(one.size_bytes / PIECE_BYTES) for one in sources)
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
            merged = _reference(first, last, found.count(sources), sources[-1].max_timestamp_ms)
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
            ProducerRecord(producer_id=one, producer_epoch=0, last_timestamp_ms=0, batches=(batch,) * 5)
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
    """A partition that is written to ten times a second, by flush interval."""
    prices = Prices()
    for interval_ms in (100, 250, 500, 1000, 2000, 5000, 10_000):
        calls = calls_in_a_day(10, 10_000, flush_interval_ms=interval_ms)
        yield (
            f"{interval_ms}",
            f"{calls.flushes:,.0f}",
            f"{calls.puts:,.0f}",
            f"{calls.gets:,.0f}",
            f"{calls.puts / calls.flushes:.2f}",
            f"{calls.dollars_a_month(prices):,.2f}",
        )


def rate_rows() -> Iterator[tuple[str, ...]]:
    """A partition by the interval between its writes, with the default flush interval."""
    prices = Prices()
    for label, batches_per_sec in (
        ("10 times a second", 10.0),
        ("every second", 1.0),
        ("every 10 seconds", 0.1),
        ("every minute", 1 / 60),
        ("every hour", 1 / 3600),
        ("never", 0.0),
    ):
        calls = calls_in_a_day(batches_per_sec, 1000 * batches_per_sec)
        yield label, f"{calls.flushes:,.0f}", f"{calls.puts:,.0f}", f"{calls.dollars_a_month(prices):,.2f}"


def cluster_rows() -> Iterator[tuple[str, ...]]:
    """Whole clusters for a month: busy partitions, each written to ten times a second."""
    prices = Prices()
    for partitions, mb_per_sec in ((10, 1), (100, 10), (100, 100), (1000, 10), (1000, 100)):
        for interval_ms in (500, 5000):
            per_partition = mb_per_sec * 1e6 / partitions
            calls = calls_in_a_day(10, per_partition, flush_interval_ms=interval_ms)
            requests = partitions * calls.dollars_a_month(prices)
            stored = mb_per_sec * 1e6 * SECONDS_PER_DAY * 7 / 1e9
            flushes = partitions * calls.flushes / SECONDS_PER_DAY
            yield (
                f"{partitions:,}",
                f"{mb_per_sec:,}",
                f"{interval_ms}",
                f"{flushes:,.0f}",
                f"{requests:,.0f}",
                f"{stored:,.0f}",
                f"{stored * prices.per_gb_month:,.0f}",
            )


def etcd_rows() -> Iterator[tuple[str, ...]]:
    """etcd's file by partitions and publications, for three lengths of its history."""
    usual = record_bytes(CHECKPOINT_SEGMENTS // 2)
    for partitions, flush_rate in ((100, 100), (1000, 200), (1000, 1900), (5000, 1000), (5000, 9500)):
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
