"""Five requests in flight, and the least that a disk takes from them: `python -m bench.disk_floor`.

One raw connection keeps five prebuilt Produce requests of one batch unanswered. They go to a server that stores
nothing, to one that has what has come in a new file, by fsync, before it answers, to Kafscale on a folder with flush
interval 0, and to Apache Kafka, which answers from memory. No broker whose acknowledgement is on the disk can be
quicker than the second one, unless it answers several reads with one file.
"""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from bench.apache_kafka import ApacheKafka
from bench.brokers import Broker
from bench.busy_partitions import row
from bench.kafscale_broker import Kafscale
from bench.noop_broker import DurableNoOp, NoOp
from bench.repeat import drive_repeat
from bench.specs import RepeatSpec
from bench.wire import produce_frame
from bench.workloads.rows import percentile

IN_FLIGHT = 5
RECORD_BYTES = 1024
BATCH_BYTES = (16 * 1024, 128 * 1024)
_SETTINGS = {"KAFSCALE_FLUSH_INTERVAL_MS": "0", "KAFSCALE_COMPRESSION_CODEC": "producer"}
PEERS: Mapping[str, Callable[[Path], Broker]] = {
    "no store": NoOp,
    "a file and its fsync": DurableNoOp,
    "Kafscale": lambda folder: Kafscale(folder, _SETTINGS),
    "Apache Kafka": ApacheKafka,
}


def measured(
    broker: Broker, batch_bytes: int, warm_up_sec: float, seconds: float
) -> tuple[float, float, float]:
    """10^6 bytes of values a second, the median reply in ms, and microseconds of the broker's CPU a request."""
    topic = f"floor-{batch_bytes}"
    if broker.speaks_kafka:
        with broker.client() as client:
            client.create_topic(topic, 1)
    values = [os.urandom(RECORD_BYTES)] * (batch_bytes // RECORD_BYTES)
    spec = RepeatSpec(
        host=broker.host,
        port=broker.port,
        frame=produce_frame(topic, 0, values, correlation_id=1).hex(),
        in_flight=IN_FLIGHT,
        warmup_seconds=warm_up_sec,
        seconds=seconds,
        broker_pids=[broker.pid],
    )
    told = drive_repeat(spec)
    window = told.window
    cpu_sec = window.broker_user_seconds + window.broker_system_seconds
    mb_per_sec = window.records * batch_bytes / 1e6 / window.seconds
    return mb_per_sec, percentile(told.milliseconds, 50), cpu_sec / max(window.records, 1) * 1e6


@click.command(help="Measure five requests in flight against the floor of the disk. Asserts nothing.")
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(0.5, 3_600), help="Of each.")
@click.option("--warm-up", default=2.0, show_default=True, type=click.FloatRange(0, 3_600))
@click.option(
    "--jit-warm-up",
    default=25.0,
    show_default=True,
    type=click.FloatRange(0, 3_600),
    help="Seconds before each of Kafka's windows.",
)
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 100))
@click.option("--peer", "peers", multiple=True, default=tuple(PEERS), type=click.Choice(list(PEERS)))
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="On the disk that is measured.",
)
def main(
    seconds: float, warm_up: float, jit_warm_up: float, repeat: int, peers: tuple[str, ...], work_dir: Path
) -> None:
    columns = ("KiB", "MB/s", "p50, ms", "broker CPU, us a request")
    click.echo(row("server", columns))
    click.echo(row("---", ["---"] * len(columns)))
    for name in peers * repeat:
        broker = PEERS[name](work_dir)
        broker.start()
        try:
            for batch_bytes in BATCH_BYTES:
                before = jit_warm_up if isinstance(broker, ApacheKafka) else warm_up
                found = measured(broker, batch_bytes, before, seconds)
                kib = f"{batch_bytes // 1024}"
                click.echo(row(name, [kib, f"{found[0]:,.1f}", f"{found[1]:.2f}", f"{found[2]:,.0f}"]))
        finally:
            broker.remove()


if __name__ == "__main__":
    main()
