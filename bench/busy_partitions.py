"""The cost of a broker's flushes when more and more partitions are written to: `python -m bench.busy_partitions`.

One broker on etcd and an S3 server of this machine. A record for every partition is sent several times a second, in
requests of up to 500 partitions on one connection. Counted: requests to the bucket, revisions of etcd, flushes and
slices, and the broker's CPU, all of it, with reading and answering the requests.
"""

import contextlib
import http.client
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click
from prometheus_client.parser import text_string_to_metric_families

from bench.brokers import HOST
from bench.cluster_stores import cluster_stores
from bench.kafscale_broker import Kafscale
from bench.payloads import RANDOM, record_pool
from bench.wire import Client, WireError, batch, produce_frame_of

PARTITIONS_IN_REQUEST = 500
_PARTITION_BYTES = 30  # of a Produce v7 reply: index, error code, three offsets and times
_MEASURES = ("rounds/s", "flushes/s", "slices/s", "PUTs/s", "etcd writes/s", "cores", "CPU us a slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counters at a time."""

    at_sec: float
    flushes: float
    slices: float
    puts: float
    etcd_writes: int
    cpu_sec: float


def counts(broker: Kafscale, etcd: str) -> Counts:
    """The counters of the broker and of etcd since their start."""
    samples = [
        sample for family in text_string_to_metric_families(broker.metrics()) for sample in family.samples
    ]

    def total(name: str, **labels: str) -> float:
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    return Counts(
        at_sec=time.perf_counter(),
        flushes=total("kafscale_flushes_total", outcome="published"),
        slices=total("kafscale_topic_flushes_total"),
        puts=total("kafscale_object_store_requests_total", operation="PutObject"),
        etcd_writes=etcd_revision(etcd),
        cpu_sec=broker.cpu(),
    )


def etcd_revision(endpoint: str) -> int:
    """It grows with each transaction that writes, and with nothing else."""
    where = urlsplit(endpoint)
    connection = http.client.HTTPConnection(where.hostname or HOST, where.port, timeout=10.0)
    with contextlib.closing(connection):
        connection.request("POST", "/v3/kv/range", json.dumps({"key": "AA=="}))
        return int(json.loads(connection.getresponse().read())["header"]["revision"])


class Rounds:
    """Sends a record to each of these partitions of a topic, a number of times a second."""

    def __init__(self, client: Client, topic: str, partitions: Sequence[int]) -> None:
        self._client = client
        values = record_pool(RANDOM, 100)
        records = batch(values[:1], timestamp_ms=time.time_ns() // 1_000_000)
        self._frames = [
            produce_frame_of(
                topic,
                dict.fromkeys(partitions[first : first + PARTITIONS_IN_REQUEST], records),
                correlation_id=1,
            )
            for first in range(0, len(partitions), PARTITIONS_IN_REQUEST)
        ]
        self._errors_begin = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4

    def send(self, per_sec: float, seconds: float) -> int:
        """Returns the number of rounds, fewer than wanted where the broker does not keep up."""
        began, rounds = time.perf_counter(), 0
        while (now := time.perf_counter()) < began + seconds:
            if (early := began + rounds / per_sec - now) > 0:
                time.sleep(early)
            replies = self._client.exchange_all(self._frames)
            for reply in replies:
                self._check(reply)
            rounds += 1
        return rounds

    def _check(self, reply: bytes) -> None:
        begin, end = self._errors_begin, len(reply) - 4
        if any(reply[begin:end:_PARTITION_BYTES]) or any(reply[begin + 1 : end : _PARTITION_BYTES]):
            raise WireError("the broker answered an error code for a partition")


def measured(before: Counts, after: Counts, rounds: int) -> dict[str, float]:
    """The rates between two counts."""
    seconds = after.at_sec - before.at_sec
    cpu_sec, slices = after.cpu_sec - before.cpu_sec, after.slices - before.slices
    values = (
        rounds / seconds,
        (after.flushes - before.flushes) / seconds,
        slices / seconds,
        (after.puts - before.puts) / seconds,
        (after.etcd_writes - before.etcd_writes) / seconds,
        cpu_sec / seconds,
        cpu_sec * 1e6 / slices,
    )
    return dict(zip(_MEASURES, values, strict=True))


@contextmanager
def running(settings: Mapping[str, str], work_dir: Path) -> Iterator[tuple[Kafscale, str]]:
    """A broker with stores of its own, and etcd's address."""
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-busy-", dir=work_dir) as folder,
        cluster_stores(Path(folder)) as stores,
    ):
        broker = Kafscale(Path(folder), {**stores.settings, **settings})
        broker.start()
        try:
            yield broker, stores.settings["KAFSCALE_ETCD_ENDPOINTS"]
        finally:
            broker.remove()


def row(name: str, values: Sequence[str]) -> str:
    """A line of the table."""
    return f"| {name} | {' | '.join(values)} |"


@click.command(help="Measure flushes of 1 to 10,000 partitions that are all written to. Asserts nothing.")
@click.option("--partitions", multiple=True, default=(1, 100, 1_000, 10_000), show_default=True, type=int)
@click.option("--rounds-per-sec", default=4.0, show_default=True, type=click.FloatRange(0.1, 1_000))
@click.option("--seconds", default=70.0, show_default=True, type=click.FloatRange(5, 3_600), help="Of each.")
@click.option("--warm-up", default=65.0, show_default=True, help="Seconds before: a first sealing.")
@click.option("--setting", "settings", multiple=True, help="NAME=VALUE of the broker; may be repeated.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
def main(
    partitions: tuple[int, ...],
    rounds_per_sec: float,
    seconds: float,
    warm_up: float,
    settings: tuple[str, ...],
    work_dir: Path,
) -> None:
    click.echo(row("partitions", _MEASURES))
    click.echo(row("---", ["---"] * len(_MEASURES)))
    for number in partitions:
        with (
            running(dict(one.split("=", 1) for one in settings), work_dir) as (broker, etcd),
            broker.client() as client,
        ):
            client.create_topic("busy", number)
            rounds = Rounds(client, "busy", range(number))
            rounds.send(rounds_per_sec, warm_up)
            before = counts(broker, etcd)
            sent = rounds.send(rounds_per_sec, seconds)
            found = measured(before, counts(broker, etcd), sent)
        click.echo(row(f"{number:,}", [f"{found[name]:,.2f}" for name in _MEASURES]))


if __name__ == "__main__":
    main()
