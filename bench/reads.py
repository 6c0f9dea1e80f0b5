"""Reads of many small slices over a slow object store, with GETs counted: `python -m bench.reads`.

One partition of many small slices, each in an entry of its own, over a store whose GETs take a while. The
yardstick gets these one after the other. Then real consumers (librdkafka) read the partition from the beginning:
alone and several at once with a broker that has just started, and again when its cache has everything; and one
follows the end of a partition that is written to.
"""

import asyncio
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench import librdkafka
from bench.kafscale_broker import Kafscale
from bench.measurement import Measurement
from bench.payloads import RANDOM, record_pool
from bench.process import filesystem_type
from bench.read_counts import counts
from bench.read_stores import FOLDER, STORES, ReadStore, read_store
from bench.report import text_report, write_json
from kafscale.formats.journal_keys import journals_prefix, parse_entry_key

TOPIC, TAIL_TOPIC = "reads", "tail"
PEER = "kafscale"
DRAIN_TIMEOUT_SEC = 120.0
# KAFSCALE_S3_CONCURRENCY's limit for reads by default: a quarter of its 64 slots is for writes only.
MANY_AT_ONCE = 48
# A partition's record has no room for more than 2,048 slices: some would be sealed.
MOST_SLICES = 2000

_RESULTS = Path(__file__).resolve().parent / "results"
_SETTINGS = {
    # One flush for each request, which stays as it is.
    "KAFSCALE_FLUSH_INTERVAL_MS": "0",
    "KAFSCALE_SEAL_INTERVAL_MS": "3600000",
    "KAFSCALE_COMPRESSION_CODEC": "producer",
    "KAFSCALE_MERGE_BYTES_PER_SEC": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The amounts of writes and reads."""

    slices: int
    records_per_slice: int
    record_bytes: int
    get_ms: float
    consumers: int
    tail_records: int
    warm_passes: int

    @property
    def records(self) -> int:
        return self.slices * self.records_per_slice


class Session:
    """One run: measurements are collected in `measured`."""

    def __init__(self, store: ReadStore, plan: ReadPlan) -> None:
        self.measured: list[Measurement] = []
        self._store = store
        self._broker = store.broker
        self._plan = plan
        self._values = record_pool(RANDOM, plan.record_bytes)

    def prepare(self) -> None:
        """Write the slices, with one request each, and stop the broker."""
        with self._started():
            with self._broker.client() as client:
                client.create_topic(TOPIC, 1)
                client.create_topic(TAIL_TOPIC, 1)
            producer = _producer(self._broker)
            for _ in range(self._plan.slices):
                self._send(producer, TOPIC, self._plan.records_per_slice)

    def yardstick(self) -> float:
        """Get every entry without a broker, one at a time and then many; returns the seconds of the former."""
        for name, at_once in (("many GETs at a time", MANY_AT_ONCE), ("one GET at a time", 1)):
            elapsed, found = asyncio.run(self._get_each(at_once))
            if found != self._plan.slices:
                raise click.ClickException(f"{found} entries were written, not {self._plan.slices}")
            self._note(name, 1, {"s": elapsed, "ms per slice": elapsed / found * 1000})
        return elapsed

    async def _get_each(self, at_once: int) -> tuple[float, int]:
        objects = self._store.open()
        try:
            found = objects.list(journals_prefix("default"))
            keys = [info.key async for info in found if parse_entry_key(info.key)]
            left = iter(keys)

            async def get_next() -> None:
                for key in left:
                    await objects.get(key)

            began = time.perf_counter()
            await asyncio.gather(*(get_next() for _ in range(at_once)))
            return time.perf_counter() - began, len(keys)
        finally:
            await objects.close()

    def measure(self, repeat: int, one_at_a_time_sec: float) -> None:
        """Every kind of read once; the broker is restarted before each cold one."""
        with self._started():
            self._drain("cold, 1 consumer", repeat, 1, one_at_a_time_sec)
            self._read_again(repeat)
            self._follow(repeat)
        with self._started():
            name = f"cold, {self._plan.consumers} consumers at once"
            self._drain(name, repeat, self._plan.consumers, one_at_a_time_sec)

    def _drain(self, name: str, repeat: int, consumers: int, one_at_a_time_sec: float) -> None:
        before = counts(self._broker)
        began = time.perf_counter()
        threads = [_Reader(self._broker, self._plan.records) for _ in range(consumers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - began
        for thread in threads:
            thread.check()
        spent = counts(self._broker) - before
        self._note(
            name,
            repeat,
            {
                "s": elapsed,
                "times as fast as one at a time": one_at_a_time_sec / elapsed,
                "GETs per slice": spent.gets / self._plan.slices,
                "GETs of other objects": spent.other_gets,
                "GETs in flight, mean": spent.get_sec / elapsed,
                "ms per GET": spent.get_sec / spent.gets * 1000 if spent.gets else 0.0,
                "Fetch requests": spent.fetches,
                "broker CPU s": spent.cpu_sec,
            },
        )

    def _read_again(self, repeat: int) -> None:
        """Each pass uses a consumer that is already connected: a pass is shorter than connecting."""
        plan, times = self._plan, []
        before = counts(self._broker)
        for _ in range(plan.warm_passes):
            with _consumer(self._broker) as consumer:
                consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
                began = time.perf_counter()
                consumer.assign([TopicPartition(TOPIC, 0, 0)])
                _take(consumer, plan.records)
                times.append(time.perf_counter() - began)
        spent = counts(self._broker) - before
        megabytes = plan.records * plan.record_bytes / 1e6
        self._note(
            "warm, from the beginning",
            repeat,
            {
                "MB/s": megabytes / statistics.median(times),
                "GETs": spent.gets + spent.other_gets,
                "broker CPU ms per pass": spent.cpu_sec / plan.warm_passes * 1000,
            },
        )

    def _follow(self, repeat: int) -> None:
        """A consumer at the end of a partition that is written to."""
        producer = _producer(self._broker)
        with _consumer(self._broker) as consumer:
            low, end = consumer.get_watermark_offsets(TopicPartition(TAIL_TOPIC, 0), timeout=10)
            if end > low:
                consumer.assign([TopicPartition(TAIL_TOPIC, 0, end - 1)])
                _take(consumer, 1)  # what an earlier broker wrote is not in the cache
            else:
                consumer.assign([TopicPartition(TAIL_TOPIC, 0, 0)])
            before = counts(self._broker)
            times = []
            for _ in range(self._plan.tail_records):
                began = time.perf_counter()
                self._send(producer, TAIL_TOPIC, 1)
                _take(consumer, 1)
                times.append(time.perf_counter() - began)
            spent = counts(self._broker) - before
        self._note(
            "warm, at the tail",
            repeat,
            {
                "ms from sending to reading": statistics.median(times) * 1000,
                "GETs": spent.gets + spent.other_gets,
            },
        )

    def _send(self, producer: Producer, topic: str, records: int) -> None:
        """Produce one batch and wait for its acknowledgement."""
        failures: list[KafkaError] = []

        def report(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for number in range(records):
            producer.produce(topic, self._values[number], partition=0, on_delivery=report)
        if producer.flush(30) or failures:
            raise click.ClickException(f"a produce to {topic} failed: {failures[:1]}")

    @contextmanager
    def _started(self) -> Iterator[None]:
        self._broker.start(lambda broker: isinstance(broker, Kafscale) and broker.readyz() and broker.ready())
        try:
            yield
        finally:
            self._broker.stop()

    def _note(self, workload: str, repeat: int, values: dict[str, float]) -> None:
        for metric, value in values.items():
            self.measured.append(
                Measurement(peer=PEER, workload=workload, metric=metric, value=value, repeat=repeat)
            )


class _Reader(threading.Thread):
    """A consumer that reads the partition from its beginning, once."""

    def __init__(self, broker: Kafscale, records: int) -> None:
        super().__init__(name="reader")
        self._broker = broker
        self._records = records
        self._failure: BaseException | None = None

    def run(self) -> None:
        """From the creation of the consumer to the last record."""
        try:
            with _consumer(self._broker) as consumer:
                consumer.assign([TopicPartition(TOPIC, 0, 0)])
                _take(consumer, self._records)
        except click.ClickException as problem:
            self._failure = problem

    def check(self) -> None:
        """Raise the error of the consumer, if any."""
        if self._failure is not None:
            raise self._failure


@contextmanager
def _consumer(broker: Kafscale) -> Iterator[Consumer]:
    """A consumer with librdkafka's defaults, without a group."""
    properties = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "bench-reads",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    with closing(Consumer(properties)) as consumer:
        yield consumer


def _producer(broker: Kafscale) -> Producer:
    """A producer whose batch waits until its records are complete; `flush` sends it."""
    # It may outlive the broker for a moment; that is no error.
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1000, "log_level": 0})


def _take(consumer: Consumer, records: int) -> None:
    deadline = time.monotonic() + DRAIN_TIMEOUT_SEC
    left = records
    while left:
        for message in consumer.consume(left, timeout=0.05):
            if message.error() is not None:
                raise click.ClickException(str(message.error()))
            left -= 1
        if left and time.monotonic() > deadline:
            raise click.ClickException(f"{left} of {records} records did not come in {DRAIN_TIMEOUT_SEC:g} s")


@click.command(help="Measure cold and warm reads of small slices, with GETs counted. Asserts nothing.")
@click.option("--store", "kind", default=FOLDER, show_default=True, type=click.Choice(STORES))
@click.option("--get-ms", default=15.0, show_default=True, type=click.FloatRange(0, 10_000))
@click.option("--slices", default=1000, show_default=True, type=click.IntRange(1, MOST_SLICES))
@click.option("--records", default=10, show_default=True, type=click.IntRange(1, 1000), help="In a slice.")
@click.option("--size", default=1000, show_default=True, type=click.IntRange(1, 100_000), help="Of a record.")
@click.option("--consumers", default=4, show_default=True, type=click.IntRange(min=2), help="At once.")
@click.option("--tail-records", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--warm-passes", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--repeat", "repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Default: bench/results/.")
def main(
    kind: str,
    get_ms: float,
    slices: int,
    records: int,
    size: int,
    consumers: int,
    tail_records: int,
    warm_passes: int,
    repeats: int,
    work_dir: Path,
    json_path: Path | None,
) -> None:
    plan = ReadPlan(
        slices=slices,
        records_per_slice=records,
        record_bytes=size,
        get_ms=get_ms,
        consumers=consumers,
        tail_records=tail_records,
        warm_passes=warm_passes,
    )
    about = _about(plan, kind, repeats, work_dir)
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-reads-", dir=work_dir) as folder,
        read_store(kind, Path(folder), _SETTINGS, get_ms) as store,
    ):
        session = Session(store, plan)
        session.prepare()
        one_at_a_time_sec = session.yardstick()
        for repeat in range(1, repeats + 1):
            session.measure(repeat, one_at_a_time_sec)
    path = json_path or _RESULTS / f"reads-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    write_json(path, session.measured, about)
    click.echo(text_report(session.measured, [PEER], _about_lines(about)))
    click.echo(f"\nEvery value: {path}")


def _about(plan: ReadPlan, kind: str, repeats: int, work_dir: Path) -> dict[str, Any]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {platform.machine()}",
        "filesystem": filesystem_type(work_dir),
        "load_average_before": list(os.getloadavg()),
        "python": platform.python_version(),
        "librdkafka": librdkafka.version(),
        "store": kind,
        "settings": _SETTINGS,
        "repeats": repeats,
        "plan": asdict(plan),
    }


def _about_lines(about: dict[str, Any]) -> list[str]:
    plan = about["plan"]
    return [
        f"{about['time']}  {about['machine']}, data on {about['filesystem']}, "
        f"load average before: {about['load_average_before'][0]:.2f}",
        f"Python {about['python']}, librdkafka {about['librdkafka']}",
        f"{plan['slices']} slices of {plan['records_per_slice']} records of {plan['record_bytes']} bytes in "
        f"one partition; store: {about['store']}, {plan['get_ms']:g} ms more for a GET",
        f"{about['repeats']} repeats; median (min-max)",
    ]


if __name__ == "__main__":
    main()
