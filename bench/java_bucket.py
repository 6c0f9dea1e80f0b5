"""A default Java producer over a bucket: `python -m bench.java_bucket`.

Kafka's own ProducerPerformance with its defaults (5 requests in flight, batches of 16 KiB) and acks=all, one
partition, one broker on etcd and an S3 server behind a proxy that delays requests like a distant bucket. A client
with five requests in flight can have five batches acknowledged in the time of a PUT: the last column is its share of
that. The budget of PUTs is lifted in all rows but the last, since it is what bounds a busy producer by default.
"""

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from bench.bucket_latency import LateBucket
from bench.busy_partitions import row
from bench.cluster_stores import cluster_stores, late_bucket
from bench.kafka_libs import java, kafka_libraries
from bench.kafscale_broker import Kafscale
from bench.workloads.rows import percentile

IN_FLIGHT = 5
BATCH_BYTES = 16 * 1024
RECORD_BYTES = 1024
_NO_BUDGET = {"KAFSCALE_FLUSHES_PER_SEC": "1000"}
ROWS: Mapping[str, Mapping[str, str]] = {
    "flush interval 500 ms, no budget of PUTs": _NO_BUDGET,
    "flush interval 0": {"KAFSCALE_FLUSH_INTERVAL_MS": "0"},
    "default: 500 ms, 4 flushes a second": {},
}
_MEASURES = ("MB/s", "PUTs/s", "PUT p50, ms", "PUT mean, ms", "of 5 batches per mean PUT", "per p50")
_SUMMARY = re.compile(r"(\d+) records sent, .*\(([\d.]+) MB/sec\)")
_TIMEOUT_SEC = 600


class ProducerError(Exception):
    """ProducerPerformance failed; the text is what it printed."""


def produced_mb_per_sec(bootstrap: str, topic: str, records: int) -> float:
    """The rate of a default Java producer, in 10^6 bytes of values a second."""
    command = [
        java(), "-cp", f"{kafka_libraries()}/*", "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SEC, check=False)
    found = _SUMMARY.findall(done.stdout)
    if done.returncode or not found or int(found[-1][0]) != records:
        raise ProducerError(done.stdout[-2000:] + done.stderr[-2000:])
    return float(found[-1][1]) * 1024 * 1024 / 1e6  # its MB is 2^20


def measured(broker: Kafscale, bucket: LateBucket, records: int) -> dict[str, float]:
    """One run, after a short one that warms the broker up."""
    produced_mb_per_sec(broker.bootstrap, "java", min(records, 1_000))
    puts_done = bucket.puts_done
    mb_per_sec = produced_mb_per_sec(broker.bootstrap, "java", records)
    put_ms = bucket.put_milliseconds(puts_done)
    p50_ms, mean_ms = percentile(put_ms, 50), sum(put_ms) / len(put_ms)
    at_once_mb = IN_FLIGHT * BATCH_BYTES / 1e6
    seconds = records * RECORD_BYTES / 1e6 / mb_per_sec
    values = (
        mb_per_sec,
        len(put_ms) / seconds,
        p50_ms,
        mean_ms,
        mb_per_sec / (at_once_mb / mean_ms * 1000),
        mb_per_sec / (at_once_mb / p50_ms * 1000),
    )
    return dict(zip(_MEASURES, values, strict=True))


@click.command(help="Measure a default Java producer over a late bucket. Asserts nothing.")
@click.option("--records", default=60_000, show_default=True, type=click.IntRange(1_000, 10_000_000))
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
def main(records: int, work_dir: Path) -> None:
    click.echo(row("broker", _MEASURES))
    click.echo(row("---", ["---"] * len(_MEASURES)))
    for name, settings in ROWS.items():
        with (
            tempfile.TemporaryDirectory(prefix="kafscale-java-", dir=work_dir) as folder,
            cluster_stores(Path(folder)) as stores,
            late_bucket(stores) as (bucket, late),
        ):
            broker = Kafscale(Path(folder), {**late.settings, **settings})
            broker.start()
            try:
                # With the budget of 4 PUTs a second the same records would take minutes.
                found = measured(broker, bucket, records if settings else records // 10)
            finally:
                broker.remove()
        click.echo(row(name, [f"{found[one]:,.2f}" for one in _MEASURES]))


if __name__ == "__main__":
    main()
