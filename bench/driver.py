"""The load driver, a process of its own: reads one spec (JSON) from stdin, prints one result (JSON)."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import assert_never

from bench.consumer_members import drive_consumer_group
from bench.copying import drive_copy
from bench.fetch_frames import drive_fetch_frames
from bench.frames import drive_frames
from bench.librdkafka import BatchTemplate, Consumer, LibrdkafkaError, Producer
from bench.meter import Meter
from bench.paced import drive_paced
from bench.payloads import record_pool
from bench.polls import drive_polls
from bench.repeat import drive_repeat
from bench.share_members import drive_share_group
from bench.specs import (
    ConsumerGroupSpec,
    ConsumeSpec,
    CopySpec,
    FetchFramesSpec,
    FramesSpec,
    Latencies,
    LatencySpec,
    PacedSpec,
    PollsSpec,
    ProduceSpec,
    RepeatSpec,
    Result,
    ShareGroupSpec,
    Spec,
    TransactionsSpec,
    Window,
    spec_from_json,
    to_json,
)
from bench.transactions import drive_transactions

_POLL_MS = 100
_STALL_SECONDS = 30.0


@dataclass(slots=True)
class _Stall:
    """Ends a run without progress, instead of waiting without limit."""

    what: str
    last: float = field(default_factory=time.monotonic)

    def moved(self, count: int) -> None:
        now = time.monotonic()
        if count:
            self.last = now
        elif now - self.last > _STALL_SECONDS:
            raise LibrdkafkaError(f"{self.what}: nothing came back for {_STALL_SECONDS:.0f} s")


def drive_produce(spec: ProduceSpec) -> Window:
    """Keeps the in-flight limit full during warm-up and window, then waits for the last acknowledgement."""
    producer = Producer(spec.topic, {"bootstrap.servers": spec.bootstrap, **spec.properties})
    batches = _batches(spec)
    partitions = cycle(range(spec.partitions))
    limit = min(spec.in_flight_records, spec.in_flight_bytes // spec.record_bytes)
    left = spec.at_most_records or sys.maxsize
    meter = Meter(spec.broker_pids)
    stall = _Stall("produce")
    in_flight = delivered_total = 0
    batch = next(batches)
    begin = time.monotonic()
    opens, closes = begin + spec.warmup_seconds, begin + spec.warmup_seconds + spec.seconds
    while (now := time.monotonic()) < closes and (left or in_flight):
        if meter.never_opened and now >= opens:
            meter.open(delivered_total)
        while left and in_flight + len(batch) <= limit:
            queued = producer.produce(next(partitions), batch, left)
            in_flight += queued
            left -= queued
            batch = next(batches)
        delivered = producer.poll(_POLL_MS)
        while delivered:
            in_flight -= delivered
            delivered_total += delivered
            stall.moved(delivered)
            delivered = producer.poll(0)
        stall.moved(0)
    if meter.never_opened:
        raise LibrdkafkaError(f"all {delivered_total} records were acknowledged before the window opened")
    meter.close(delivered_total)
    while in_flight:
        delivered = producer.poll(_POLL_MS)
        stall.moved(delivered)
        in_flight -= delivered
        delivered_total += delivered
    producer.close()
    return meter.window(spec.record_bytes, total_records=delivered_total)


def drive_consume(spec: ConsumeSpec) -> Window:
    """Reads the same range in each pass, timed from the first fetch to the last record.

    Each pass has its own consumer: the one before may have left a fetch that waits for new data, and a
    client has only one fetch in flight at a broker.
    """
    meter = Meter(spec.broker_pids)
    total = 0
    for number in range(spec.warmup_passes + spec.passes):
        consumer = Consumer(spec.topic, {"bootstrap.servers": spec.bootstrap, **spec.properties})
        offsets, wanted = _range_to_consume(spec, consumer)
        measured = number >= spec.warmup_passes
        if measured:
            meter.open(total)
        total += _consume_pass(consumer, offsets, wanted)
        if measured:
            meter.close(total)
        consumer.close()
    return meter.window(spec.record_bytes, total_records=total)


def _range_to_consume(spec: ConsumeSpec, consumer: Consumer) -> tuple[dict[int, int], int]:
    """The first offset of each partition, and the number of records to read, from any of the partitions."""
    per_partition = spec.records // spec.partitions
    offsets, wanted = {}, 0
    for partition in range(spec.partitions):
        low, high = consumer.watermarks(partition)
        offsets[partition] = max(low, high - per_partition) if spec.from_end else low
        wanted += min(high - low, per_partition)
    return offsets, wanted


def _consume_pass(consumer: Consumer, offsets: dict[int, int], wanted: int) -> int:
    stall = _Stall("consume")
    taken = 0
    consumer.start(offsets)
    while taken < wanted:
        count = consumer.poll(_POLL_MS)
        stall.moved(count)
        taken += count
    return taken


def drive_latency(spec: LatencySpec) -> Latencies:
    """One record each tick; acknowledgements of one partition come in order, so they match by position."""
    producer = Producer(spec.topic, {"bootstrap.servers": spec.bootstrap, **spec.properties})
    batch = BatchTemplate(record_pool(spec.payload, spec.record_bytes)[:1])
    stall = _Stall("latency")
    waiting: deque[float] = deque()
    measured: list[float] = []
    begin = time.monotonic()
    opens = begin + spec.warmup_seconds
    ticks = int((spec.warmup_seconds + spec.seconds) * spec.per_second)
    for tick in range(1, ticks + 1):
        waiting.append(time.monotonic())
        producer.produce(0, batch)
        next_at = begin + tick / spec.per_second
        while waiting and (tick == ticks or time.monotonic() < next_at):
            delivered = producer.poll(max(0, min(_POLL_MS, int((next_at - time.monotonic()) * 1000))))
            now = time.monotonic()
            stall.moved(delivered)
            for _ in range(delivered):
                sent = waiting.popleft()
                if sent >= opens:
                    measured.append((now - sent) * 1000)
        time.sleep(max(0.0, next_at - time.monotonic()))
    producer.close()
    return Latencies(milliseconds=sorted(measured), total_records=ticks)


def _batches(spec: ProduceSpec) -> Iterator[BatchTemplate]:
    pool = record_pool(spec.payload, spec.record_bytes)
    records = max(1, spec.chunk_bytes // spec.record_bytes)
    templates = [BatchTemplate(pool[at : at + records]) for at in range(0, len(pool), records)]
    return cycle(templates)


def drive(spec: Spec) -> Result:
    """Runs the driver that the spec's type names."""
    match spec:
        case ProduceSpec():
            return drive_produce(spec)
        case ConsumeSpec():
            return drive_consume(spec)
        case LatencySpec():
            return drive_latency(spec)
        case FramesSpec():
            return drive_frames(spec)
        case FetchFramesSpec():
            return drive_fetch_frames(spec)
        case PacedSpec():
            return drive_paced(spec)
        case RepeatSpec():
            return drive_repeat(spec)
        case PollsSpec():
            return drive_polls(spec)
        case CopySpec():
            return drive_copy(spec)
        case TransactionsSpec():
            return drive_transactions(spec)
        case ConsumerGroupSpec():
            return drive_consumer_group(spec)
        case ShareGroupSpec():
            return drive_share_group(spec)
    assert_never(spec)


def main() -> None:
    """Entry point of the driver process."""
    print(to_json(drive(spec_from_json(sys.stdin.readline()))), flush=True)


if __name__ == "__main__":
    main()
