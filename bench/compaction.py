"""Compaction of one partition with many updates of few keys: `python -m bench.compaction`.

A broker on a folder takes the updates while it compacts nothing. Then it starts again, unpaced, and its counters and
the memory of its process and of the one that looks into records are read until the partition is compacted. At the end
the log is read, so that what the broker says to be left is counted.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families

from bench.kafscale_broker import Kafscale
from bench.process import descendants, memory, process_cpu, process_tree_cpu_with_ended
from bench.wire import (
    Client,
    FetchPlace,
    fetch_frame,
    fetched_records,
    produce_error_position,
    produce_frame_of,
)
from kafscale.protocol.record_batch import HEADER_SIZE, read_header, write_crc
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record, decode_records
from tests.support.topics import create_topic

TOPIC: Final = "compaction"
CONFIGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
_KEY_DIGITS: Final = 9
_CREATED_MS: Final = 1_750_000_000_000
_REQUESTS_AT_ONCE: Final = 8
_POLL_SEC: Final = 0.1
_FETCH_BYTES: Final = 32 << 20
_OPENED_LIMIT_BYTES: Final = 64 << 20
_GETS: Final = ("get", "get_range", "read_into")
_PUTS: Final = ("put", "put_if_absent", "put_if_absent_streamed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """The updates. Keys come at random, alike often; values are random bytes, which no codec makes smaller."""

    records: int
    keys: int
    value_bytes: int
    batch_records: int

    def batches(self) -> Iterator[bytes]:
        """Batches of all records: one template, whose keys and values are overwritten."""
        chance = np.random.default_rng(1)
        template = np.frombuffer(self._template(), np.uint8)
        # The value is the placeholder's only byte of its kind; the key lies `_KEY_DIGITS` and a length before it.
        value_at, key_at = self._places(template)
        powers = 10 ** np.arange(_KEY_DIGITS - 1, -1, -1, dtype=np.int64)
        for _ in range(self.records // self.batch_records):
            batch = template.copy()
            numbers = chance.integers(0, self.keys, self.batch_records)
            batch[key_at] = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
            batch[value_at] = chance.integers(0, 256, value_at.shape, np.uint8)
            written = bytearray(batch.tobytes())
            write_crc(written, 0)
            yield bytes(written)

    def _template(self) -> bytes:
        return encode_batch(
            [
                Record(number, _CREATED_MS, b"\xfe" * _KEY_DIGITS, b"\xff" * self.value_bytes)
                for number in range(self.batch_records)
            ]
        )

    def _places(self, template: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        values, keys = _runs(template, 0xFF, self.value_bytes), _runs(template, 0xFE, _KEY_DIGITS)
        assert len(values) == len(keys) == self.batch_records, "a length looks like a placeholder"
        return (
            values[:, None] + np.arange(self.value_bytes),
            keys[:, None] + np.arange(_KEY_DIGITS),
        )


def _runs(template: npt.NDArray[np.uint8], byte: int, length: int) -> npt.NDArray[np.int64]:
    """Where runs of the byte begin that are that long, behind the header."""
    is_in = template[HEADER_SIZE:] == byte
    begins = np.flatnonzero(is_in & ~np.concatenate(([False], is_in[:-1])))
    ends = np.flatnonzero(is_in & ~np.concatenate((is_in[1:], [False]))) + 1
    found: npt.NDArray[np.int64] = begins[ends - begins == length] + HEADER_SIZE
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A broker's counters at a time, and the CPU seconds of its process alone."""

    compactions: float
    failures: float
    compaction_sec: float
    removed_records: float
    replaced_bytes: float
    published_bytes: float
    read_bytes: float
    written_bytes: float
    seal_debt: float

    @classmethod
    def of(cls, broker: Kafscale) -> "Counters":
        samples = [
            sample for family in text_string_to_metric_families(broker.metrics()) for sample in family.samples
        ]

        def total(name: str, label: str = "", of: Sequence[str] = ()) -> float:
            return sum(
                one.value for one in samples if one.name == name and (not of or one.labels.get(label) in of)
            )

        store = "kafscale_object_store_bytes_total"
        return cls(
            compactions=total("kafscale_compactions_total", "outcome", ("done",)),
            failures=total("kafscale_compactions_total", "outcome", ("failed", "given_up")),
            compaction_sec=total("kafscale_compaction_seconds_total"),
            removed_records=total("kafscale_compaction_removed_records_total"),
            replaced_bytes=total("kafscale_compaction_replaced_bytes_total"),
            published_bytes=total("kafscale_compaction_written_bytes_total"),
            read_bytes=total(store, "operation", _GETS),
            written_bytes=total(store, "operation", _PUTS),
            seal_debt=total("kafscale_seal_debt_slices"),
        )


@dataclass(slots=True)
class Watched:
    """The largest values that were seen while the broker compacted."""

    worker_peak_bytes: int = 0
    worker_cpu_sec: float = 0.0

    def look(self, broker: Kafscale) -> None:
        for pid in descendants(broker.pid):
            # It may end at any time.
            with contextlib.suppress(OSError, KeyError):
                self.worker_peak_bytes = max(self.worker_peak_bytes, memory(pid).peak_resident_bytes)
                self.worker_cpu_sec = max(self.worker_cpu_sec, process_cpu(pid).total)


class CompactionFailedError(Exception):
    """The broker did not compact the partition."""


@contextmanager
def _running(broker: Kafscale) -> Iterator[None]:
    broker.start(lambda one: isinstance(one, Kafscale) and one.readyz() and one.ready())
    try:
        yield
    finally:
        broker.stop()


def _write(broker: Kafscale, updates: Updates) -> int:
    """Write all, and wait until they are sealed with one more record behind; returns their bytes."""
    sent_bytes = 0
    with broker.client() as client:
        waiting: list[bytes] = []
        for batch in updates.batches():
            sent_bytes += len(batch)
            waiting.append(produce_frame_of(TOPIC, {0: batch}, 1))
            if len(waiting) == _REQUESTS_AT_ONCE:
                _send(client, waiting)
        _send(client, waiting)
        _wait_until_sealed(broker)
        # The newest segment is not compacted: this record is in it, alone.
        last = encode_batch([Record(0, _CREATED_MS, b"last", b"last")])
        _send(client, [produce_frame_of(TOPIC, {0: last}, 1)])
    _wait_until_sealed(broker)
    return sent_bytes


def _send(client: Client, frames: list[bytes]) -> None:
    for reply in client.exchange_all(frames):
        produce_error_position(reply)  # raises if there is an error
    frames.clear()


def _wait_until_sealed(broker: Kafscale) -> None:
    while Counters.of(broker).seal_debt:
        time.sleep(_POLL_SEC)


def _watch(broker: Kafscale, seconds: float) -> tuple[Counters, Watched]:
    """The counters once a compaction is done."""
    watched = Watched()
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        watched.look(broker)
        found = Counters.of(broker)
        if found.failures:
            raise CompactionFailedError("a compaction has failed; the broker's log says why")
        if found.compactions:
            return found, watched
        time.sleep(_POLL_SEC)
    raise CompactionFailedError(f"no compaction was done in {seconds:.0f} s")


def _read(client: Client, end_offset: int) -> tuple[int, int]:
    """How many records and different keys a consumer reads from the start."""
    offset, records, keys = 0, 0, set()
    while offset < end_offset:
        place = FetchPlace(topic=TOPIC, partition=0, offset=offset)
        reply = client.exchange(fetch_frame([place], max_bytes=_FETCH_BYTES, max_wait_ms=500))
        batches, _ = fetched_records(reply)
        position = 0
        while position + HEADER_SIZE <= len(batches):
            header = read_header(batches, position)
            batch = memoryview(batches)[position : position + header.size_bytes]
            if len(batch) < header.size_bytes:
                break
            for record in decode_records(batch, _OPENED_LIMIT_BYTES):
                if record.offset >= offset:
                    records += 1
                    keys.add(bytes(record.key or b""))
            position += header.size_bytes
            offset = header.last_offset + 1
    return records, len(keys)


def _report(rows: Mapping[str, float]) -> None:
    for name, value in rows.items():
        click.echo(f"{name:<52} {value:>16,.2f}")


@click.command(help="Measure the compaction of one partition with many updates of few keys.")
@click.option("--records", default=10_000_000, show_default=True, type=click.IntRange(1_000, 1_000_000_000))
@click.option("--keys", default=100_000, show_default=True, type=click.IntRange(1, 10**_KEY_DIGITS))
@click.option(
    "--size", default=100, show_default=True, type=click.IntRange(_KEY_DIGITS + 1, 10_000), help="Of a value."
)
@click.option(
    "--batch", default=1_000, show_default=True, type=click.IntRange(1, 10_000), help="Records of a batch."
)
@click.option("--seconds", default=3_600.0, show_default=True, help="At most, for the compaction.")
@click.option("--setting", "settings", multiple=True, help="NAME=VALUE of the broker; may be repeated.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
def main(
    records: int, keys: int, size: int, batch: int, seconds: float, settings: tuple[str, ...], work_dir: Path
) -> None:
    if records % batch:
        raise click.UsageError(f"--records {records} is no multiple of --batch {batch}")
    updates = Updates(records=records, keys=keys, value_bytes=size, batch_records=batch)
    with tempfile.TemporaryDirectory(prefix="kafscale-compaction-", dir=work_dir) as folder:
        common = {
            "KAFSCALE_LOCAL_FSYNC": "false",
            "KAFSCALE_SEAL_INTERVAL_MS": "1000",
            "KAFSCALE_SEAL_MAX_AGE_MS": "1000",
            "KAFSCALE_MERGE_CHECK_INTERVAL_MS": "500",
            "KAFSCALE_MERGE_BYTES_PER_SEC": "0",
            "KAFSCALE_COMPACTION_BYTES_PER_SEC": "1024GiB",
        } | dict(one.split("=", 1) for one in settings)
        broker = Kafscale(Path(folder), common)
        try:
            _measure(broker, updates, seconds)
        except CompactionFailedError as problem:
            click.echo(f"bench.compaction: {problem}", err=True)
            sys.exit(1)


def _measure(broker: Kafscale, updates: Updates, seconds: float) -> None:
    quiet = broker.with_settings({"KAFSCALE_COMPACTION_BYTES_PER_SEC": "0"})
    with _running(quiet):
        began = time.perf_counter()
        create_topic(quiet, TOPIC, 1, CONFIGS)
        sent_bytes = _write(quiet, updates)
        quiet_peak = memory(quiet.pid).peak_resident_bytes
        taken_sec = time.perf_counter() - began
    click.echo(f"{updates.records:,} records, {sent_bytes:,} bytes, written and sealed in {taken_sec:.0f} s")
    with _running(broker):
        before_cpu = process_cpu(broker.pid).total
        found, watched = _watch(broker, seconds)
        broker_cpu = process_cpu(broker.pid).total - before_cpu
        cpu = process_tree_cpu_with_ended(broker.pid).total - before_cpu
        peak = memory(broker.pid).peak_resident_bytes
        with broker.client() as client:
            left, left_keys = _read(client, client.log_end_offset(TOPIC, 0))
    removed_bytes = found.replaced_bytes - found.published_bytes
    _report(
        {
            "records left, that of the newest segment included": left,
            "keys": left_keys,
            "records removed": found.removed_records,
            "bytes before": found.replaced_bytes,
            "bytes after": found.published_bytes,
            "seconds of the compaction": found.compaction_sec,
            "CPU seconds, both processes": cpu,
            "CPU seconds of the broker's process": broker_cpu,
            "load of the machine (one minute)": os.getloadavg()[0],
            "records a second": updates.records / found.compaction_sec,
            "records a CPU second, a core": updates.records / max(cpu, 1e-9),
            "bytes read for each that was removed": found.read_bytes / max(removed_bytes, 1),
            "bytes written for each that was removed": found.written_bytes / max(removed_bytes, 1),
            "peak memory of the broker's process, MiB": peak / 2**20,
            "the same while it only took the records": quiet_peak / 2**20,
            "peak memory of the compaction's process, MiB": watched.worker_peak_bytes / 2**20,
        }
    )


if __name__ == "__main__":
    main()
