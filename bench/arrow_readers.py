"""Reads all records of one topic in one way, and prints what that took, as JSON: `python -m bench.arrow_readers`.

Each run is a process of its own, so that its processor time and its memory are those of one way. What is imported or
compiled is not measured.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import kafscale
from bench.process import memory
from kafscale.arrow import record_columns as _compiled  # noqa: F401 - compiles when it is imported

CONFLUENT, ARROW, ARROW_DUCKDB = "confluent-kafka", "kafscale.read", "kafscale.read, DuckDB"
TO_PARQUET, PARQUET, PARQUET_DUCKDB = "kafscale.read to Parquet", "Parquet, pyarrow", "Parquet, DuckDB"
WAYS = (CONFLUENT, ARROW, ARROW_DUCKDB, TO_PARQUET, PARQUET, PARQUET_DUCKDB)

_parquet: Any = pq  # pyarrow has types for some of it

_QUERY = (
    'SELECT count(*), sum(octet_length(key)), sum(octet_length(value)), max("offset"), max(timestamp) FROM {}'
)
_MESSAGES_AT_ONCE = 10_000
_STALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`parquet`: the file that is written by `TO_PARQUET`, and read afterwards."""

    way: str
    topic: str
    partitions: int
    records: int
    data_folder: str
    bootstrap: str
    parquet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The processor time is of the reading process alone; `peak_bytes` is its largest resident memory."""

    records: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def main() -> None:
    """Read in the way that standard input says."""
    task = Task(**json.load(sys.stdin))
    read = prepared(task)
    before, started = _cpu_seconds(), time.monotonic()
    records = read()
    outcome = Outcome(
        records=records,
        seconds=time.monotonic() - started,
        cpu_seconds=_cpu_seconds() - before,
        # Not getrusage's, which begins with that of the process that started this one.
        peak_bytes=memory(os.getpid()).peak_resident_bytes,
    )
    print(json.dumps(asdict(outcome)))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def prepared(task: Task) -> Callable[[], int]:
    """The function that reads all records, and returns their number. Raises `ValueError` for another way."""
    match task.way:
        case way if way == CONFLUENT:
            return _by_consumer(task)
        case way if way == ARROW:
            return lambda: sum(batch.num_rows for batch in _opened(task))
        case way if way == ARROW_DUCKDB:
            return _by_duckdb(lambda: _opened(task))
        case way if way == TO_PARQUET:
            return lambda: _to_parquet(task)
        case way if way == PARQUET:
            return lambda: sum(batch.num_rows for batch in _parquet.ParquetFile(task.parquet).iter_batches())
        case way if way == PARQUET_DUCKDB:
            return _by_duckdb(lambda: task.parquet)
        case way:
            raise ValueError(f"{way!r} is not a way to read")


def _opened(task: Task) -> pa.RecordBatchReader:
    return kafscale.read(Path(task.data_folder), task.topic)


def _to_parquet(task: Task) -> int:
    reader = _opened(task)
    rows = 0
    with _parquet.ParquetWriter(task.parquet, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _by_duckdb(source: Callable[[], Any]) -> Callable[[], int]:
    """The same query over a reader or a file: every column of the records but headers is looked at."""
    import duckdb  # type: ignore[import-not-found, unused-ignore]

    def read() -> int:
        found = source()
        if isinstance(found, str):
            relation = duckdb.execute(_QUERY.format("read_parquet(?)"), [found])
        else:
            relation = duckdb.execute(_QUERY.format("found"))
        count: int = relation.fetchall()[0][0]
        return count

    return read


def _by_consumer(task: Task) -> Callable[[], int]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            # What librdkafka takes in ahead is not to be what limits it.
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
        }
    )

    def read() -> int:
        consumer.assign([TopicPartition(task.topic, one, OFFSET_BEGINNING) for one in range(task.partitions)])
        rows = size_bytes = 0
        last_moved = time.monotonic()
        while rows < task.records:
            for message in consumer.consume(_MESSAGES_AT_ONCE, timeout=0.2):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                size_bytes += len(message.key() or b"") + len(message.value() or b"")
                rows += 1
                last_moved = time.monotonic()
            if time.monotonic() - last_moved > _STALL_SECONDS:
                raise RuntimeError(
                    f"{rows} of {task.records} records came, and no more for {_STALL_SECONDS:g} s"
                )
        consumer.close()
        return rows

    return read


if __name__ == "__main__":
    main()
