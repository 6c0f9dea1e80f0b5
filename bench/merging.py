"""Merging of many partitions with many small segments each: `python -m bench.merging`.

The segments are written straight into the stores, in a few seconds. Then a broker starts, and its counters are read
until all is merged or the time is over. With `--produce`, single records are produced at a fixed rate meanwhile to
another topic, and before that beside a broker that merges nothing.
"""

import asyncio
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from prometheus_client.parser import text_string_to_metric_families

from bench.brokers import ROOT
from bench.bucket_latency import LateBucket, Lateness
from bench.cluster_stores import cluster_stores
from bench.kafscale_broker import Kafscale
from bench.paced import drive_paced
from bench.payloads import RANDOM
from bench.specs import Latencies, PacedSpec
from kafscale.broker.stores import open_stores
from kafscale.formats import object_keys
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.segment import body_crc, encode_footer, encode_header
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.settings.broker import load_settings
from kafscale.tasks.bounded import map_bounded

TOPIC, PRODUCED = "merging", "produced"
FOLDER, SLOW, S3 = "folder", "slow-folder", "s3"
NAMESPACE = "default"
_CREATED_MS = 1_700_000_000_000
_WRITES_AT_ONCE = 16
_RECORDS_PER_TRANSACTION = 16
_QUIET_SEC = 6.0
_POLL_SEC = 0.5
_GETS = ("get", "get_range", "read_into", "size_bytes")
_PUTS = ("put", "put_if_absent", "put_if_absent_streamed", "list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The segments at the start. `is_gathered`: those of one time of all partitions lie in one object."""

    partitions: int
    segments: int
    record_bytes: int
    is_gathered: bool

    def reference(self, partition: int, number: int) -> tuple[SegmentReference, bytes]:
        """A segment of one record, and its reference, whose `start` is still 0."""
        value = bytes([(partition + number) % 256]) * self.record_bytes
        batch = encode_batch([Record(number, _CREATED_MS + number, None, value)], partition_leader_epoch=0)
        header = encode_header(
            codec=Codec.NONE, base_offset=number, message_count=1, created_ms=_CREATED_MS + number
        )
        footer = encode_footer(body_crc=body_crc([batch]), last_offset=number)
        data = b"".join((header, batch, footer))
        reference = SegmentReference(
            base_offset=number,
            last_offset=number,
            record_count=1,
            leader_epoch=0,
            size_bytes=len(data),
            max_timestamp_ms=_CREATED_MS + number,
        )
        return reference, data


async def _write_round(objects: ObjectStore, backlog: Backlog, number: int) -> list[SegmentReference]:
    """The segments of one time, one for each partition."""
    found = [backlog.reference(partition, number) for partition in range(backlog.partitions)]
    if not backlog.is_gathered:

        async def write(partition: int) -> None:
            key = object_keys.segment_key(NAMESPACE, TOPIC, partition, number)
            await objects.put_if_absent(key, [found[partition][1]])

        await map_bounded(write, range(backlog.partitions), _WRITES_AT_ONCE)
        return [reference for reference, _ in found]
    key = f"_kafscale/{NAMESPACE}/gathered/{number:020d}.bench"
    await objects.put_if_absent(key, [data for _, data in found])
    placed, start = [], 0
    for one, data in found:
        placed.append(
            SegmentReference(
                base_offset=one.base_offset,
                last_offset=one.last_offset,
                record_count=one.record_count,
                leader_epoch=one.leader_epoch,
                size_bytes=one.size_bytes,
                max_timestamp_ms=one.max_timestamp_ms,
                object_key=key,
                start=start,
            )
        )
        start += len(data)
    return placed


async def _seed(environment: Mapping[str, str], backlog: Backlog) -> None:
    settings = load_settings({**environment, "KAFSCALE_LOCAL_FSYNC": "false"})
    async with contextlib.AsyncExitStack() as stack:
        metadata, objects = await open_stores(settings, stack)
        rounds = [await _write_round(objects, backlog, number) for number in range(backlog.segments)]
        topic = TopicRecord(name=TOPIC, topic_id=uuid.uuid4(), partition_count=backlog.partitions)
        puts = []
        for partition, segments in enumerate(zip(*rounds, strict=True)):
            record = PartitionRecord(
                leader_epoch=0,
                log_end_offset=backlog.segments,
                epochs=(EpochStart(0, 0),),
                segments=segments,
            )
            puts.append(Put(keys.partition(TOPIC, partition), encode_partition_record(record)))
        for first in range(0, len(puts), _RECORDS_PER_TRANSACTION):
            await metadata.transact([], puts[first : first + _RECORDS_PER_TRANSACTION])
        await metadata.transact([], [Put(keys.topic(TOPIC), encode_topic_record(topic))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A broker's counters at a time."""

    at: float
    sources: float
    merges: float
    gets: float
    puts: float
    get_sec: float
    put_sec: float
    cpu_sec: float

    @classmethod
    def of(cls, broker: Kafscale) -> "Reading":
        samples = [
            sample for family in text_string_to_metric_families(broker.metrics()) for sample in family.samples
        ]

        def total(name: str, operations: tuple[str, ...] = ()) -> float:
            return sum(
                one.value
                for one in samples
                if one.name == name and (not operations or one.labels.get("operation") in operations)
            )

        calls = "kafscale_object_store_duration_seconds_count"
        times = "kafscale_object_store_duration_seconds_sum"
        return cls(
            at=time.perf_counter(),
            sources=total("kafscale_merged_segments_total"),
            merges=total("kafscale_merges_total"),
            gets=total(calls, _GETS),
            puts=total(calls, _PUTS),
            get_sec=total(times, _GETS),
            put_sec=total(times, _PUTS),
            cpu_sec=broker.cpu(),
        )


def _watch(broker: Kafscale, seconds: float) -> tuple[Reading, Reading]:
    """The counters before the first merge, and after the last one or when the time is over."""
    first = last = Reading.of(broker)
    ends = time.perf_counter() + seconds
    while (now := time.perf_counter()) < ends:
        time.sleep(_POLL_SEC)
        found = Reading.of(broker)
        if not found.sources:
            first = last = found
            ends = now + seconds
        elif found.sources > last.sources:
            last = found
        elif found.at - last.at > _QUIET_SEC:
            break
    return first, last


def _produce(broker: Kafscale, seconds: float) -> Latencies:
    spec = PacedSpec(
        host=broker.host,
        port=broker.port,
        topic=PRODUCED,
        partitions=10,
        record_bytes=1000,
        payload=RANDOM,
        per_second=50,
        connections=10,
        warmup_seconds=3,
        seconds=seconds,
    )
    # The bucket's delay is made in this process.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(drive_paced, spec).result()


class SlowBroker(Kafscale):
    """A broker over a folder whose GETs and PUTs take so much longer, as those of a bucket."""

    latency_ms = 0.0

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.slow_broker", str(self.latency_ms), str(self.latency_ms)]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(ROOT), **super().environment()}


@contextmanager
def _stores(kind: str, folder: Path, latency_ms: float) -> Iterator[Mapping[str, str]]:
    if kind != S3:
        yield {}
        return
    with cluster_stores(folder) as stores:
        late = Lateness(p50_ms=latency_ms, p99_ms=latency_ms * 1.01)
        with LateBucket(stores.settings["KAFSCALE_S3_ENDPOINT"], put=late, get=late, seed=1) as bucket:
            yield {**stores.settings, "KAFSCALE_S3_ENDPOINT": bucket.url}


@contextmanager
def _running(broker: Kafscale) -> Iterator[None]:
    broker.start(lambda one: isinstance(one, Kafscale) and one.readyz() and one.ready())
    try:
        yield
    finally:
        broker.stop()


def _say(title: str, values: Mapping[str, float]) -> None:
    click.echo(f"{title}: " + ", ".join(f"{name} {value:,.2f}" for name, value in values.items()))


def _report(first: Reading, last: Reading) -> None:
    seconds, sources = last.at - first.at, last.sources
    cpu = last.cpu_sec - first.cpu_sec
    gets, puts = last.gets - first.gets, last.puts - first.puts
    _say(
        "merging",
        {
            "sources": sources,
            "s": seconds,
            "sources/s": sources / seconds,
            "merges/s": last.merges / seconds,
            "CPU s": cpu,
            "CPU ms a source": cpu * 1000 / max(1, sources),
            "cores": cpu / seconds,
            "GETs a source": gets / max(1, sources),
            "ms a GET": (last.get_sec - first.get_sec) * 1000 / max(1, gets),
            "PUTs and LISTs a source": puts / max(1, sources),
            "ms a PUT or LIST": (last.put_sec - first.put_sec) * 1000 / max(1, puts),
        },
    )


def _report_latencies(title: str, found: Latencies) -> None:
    times = found.milliseconds
    _say(
        title, {f"p{part} ms": times[min(len(times) - 1, len(times) * part // 100)] for part in (50, 95, 99)}
    )


@click.command(help="Measure how fast a broker merges a backlog of small segments. Asserts nothing.")
@click.option("--store", "kind", default=FOLDER, show_default=True, type=click.Choice((FOLDER, SLOW, S3)))
@click.option("--latency-ms", default=20.0, show_default=True, help="Of each request to the bucket.")
@click.option("--partitions", default=1000, show_default=True, type=click.IntRange(1, 100_000))
@click.option(
    "--segments", default=40, show_default=True, type=click.IntRange(4, 120), help="Of a partition."
)
@click.option("--size", default=1000, show_default=True, type=click.IntRange(1, 100_000), help="Of a record.")
@click.option("--gathered", is_flag=True, help="The segments of one time lie in one object.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(5, 3600))
@click.option("--produce", "produces", is_flag=True, help="Measure acknowledgements beside it.")
@click.option("--setting", "settings", multiple=True, help="NAME=VALUE of the broker; may be repeated.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
def main(
    kind: str,
    latency_ms: float,
    partitions: int,
    segments: int,
    size: int,
    gathered: bool,
    seconds: float,
    produces: bool,
    settings: tuple[str, ...],
    work_dir: Path,
) -> None:
    backlog = Backlog(partitions=partitions, segments=segments, record_bytes=size, is_gathered=gathered)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-merging-", dir=work_dir))
        stores = stack.enter_context(_stores(kind, Path(folder), latency_ms))
        extra = dict(one.split("=", 1) for one in settings)
        common = {**stores, "KAFSCALE_MERGE_CHECK_INTERVAL_MS": "1000", **extra}
        broker = SlowBroker(Path(folder), common) if kind == SLOW else Kafscale(Path(folder), common)
        if isinstance(broker, SlowBroker):
            broker.latency_ms = latency_ms
        with _running(broker):
            pass  # It marks the stores as belonging together.
        asyncio.run(_seed({**os.environ, **broker.environment()}, backlog))
        if produces:
            quiet = broker.with_settings({"KAFSCALE_MERGE_BYTES_PER_SEC": "0"})
            with _running(quiet):
                with quiet.client() as client:
                    client.create_topic(PRODUCED, 10)
                _report_latencies("produce, nothing is merged", _produce(quiet, seconds))
        with _running(broker):
            if produces:
                first = Reading.of(broker)
                _report_latencies("produce beside merging", _produce(broker, seconds))
                last = Reading.of(broker)
            else:
                first, last = _watch(broker, seconds)
            _report(first, last)


if __name__ == "__main__":
    main()
