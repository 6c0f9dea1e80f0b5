"""The bill of a cluster's requests, counted for ten minutes: `python -m bench.bill`.

Brokers on etcd and an S3 server of this machine, with default settings. A record of 100 bytes is sent to every
partition once a second, to its leader, in requests of up to 500 partitions on one connection to each broker. The
report is that of `kafscale cost`: requests of every class at S3 Standard's prices.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from bench.busy_partitions import Rounds
from bench.cluster_stores import cluster_stores
from bench.kafscale_broker import Kafscale
from kafscale.commands.cost_report import as_text
from kafscale.tools.cost.intervals import flush_costs
from kafscale.tools.cost.rates import Rates, rates
from kafscale.tools.cost.scrape import Scrape, parse_scrape

TOPIC = "billed"
BUDGETS = (1.0, 2.0, 4.0)
"""KAFSCALE_FLUSHES_PER_SEC that the report's estimates are for."""


@contextmanager
def running(count: int, settings: Mapping[str, str], work_dir: Path) -> Iterator[list[Kafscale]]:
    """So many brokers with stores of their own."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-bill-", dir=work_dir))
        stores = stack.enter_context(cluster_stores(Path(folder)))
        brokers = [
            Kafscale(Path(folder), {**stores.settings, **settings, "KAFSCALE_BROKER_ID": str(number)})
            for number in range(1, count + 1)
        ]
        for broker in brokers:
            stack.callback(broker.remove)
            broker.launch()
        for broker in brokers:
            broker.wait_until_up()
        yield brokers


@contextmanager
def loads(brokers: Sequence[Kafscale], partitions: int) -> Iterator[list[Rounds]]:
    """A new topic, and for each broker the rounds over the partitions that it leads."""
    with ExitStack() as stack:
        clients = {(one.host, one.port): stack.enter_context(one.client()) for one in brokers}
        client = next(iter(clients.values()))
        client.create_topic(TOPIC, partitions)
        yield [Rounds(clients[leader], TOPIC, led) for leader, led in client.led_partitions(TOPIC).items()]


def send(rounds: Sequence[Rounds], per_sec: float, seconds: float) -> None:
    """Sends to all brokers side by side."""
    with ThreadPoolExecutor(len(rounds)) as pool:
        for sent in [pool.submit(one.send, per_sec, seconds) for one in rounds]:
            sent.result()


def measured(brokers: Sequence[Kafscale], rounds: Sequence[Rounds], per_sec: float, seconds: float) -> Rates:
    """The cost of the brokers' requests while all partitions are written to."""
    before = _scrapes(brokers)
    send(rounds, per_sec, seconds)
    return rates(before, _scrapes(brokers))


def _scrapes(brokers: Sequence[Kafscale]) -> list[Scrape]:
    return [parse_scrape(broker.bootstrap, broker.metrics(), time.time()) for broker in brokers]


@click.command(help="Count a cluster's requests while all partitions are written to. Asserts nothing.")
@click.option("--brokers", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--partitions", default=1_000, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--rounds-per-sec", default=1.0, show_default=True, type=click.FloatRange(0.1, 1_000))
@click.option("--seconds", default=600.0, show_default=True, type=click.FloatRange(5, 86_400))
@click.option("--warm-up", default=65.0, show_default=True, help="Seconds before: a first sealing.")
@click.option("--setting", "settings", multiple=True, help="NAME=VALUE of the brokers; may be repeated.")
@click.option(
    "--work-dir",
    default=Path(tempfile.gettempdir()),
    show_default=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
)
def main(
    brokers: int,
    partitions: int,
    rounds_per_sec: float,
    seconds: float,
    warm_up: float,
    settings: tuple[str, ...],
    work_dir: Path,
) -> None:
    with (
        running(brokers, dict(one.split("=", 1) for one in settings), work_dir) as started,
        loads(started, partitions) as rounds,
    ):
        click.echo(f"warming up for {warm_up:g} s, then counting for {seconds:g} s", err=True)
        send(rounds, rounds_per_sec, warm_up)
        found = measured(started, rounds, rounds_per_sec, seconds)
    interval_ms = round(found.flush_interval_sec * 1000)
    click.echo(as_text(found, flush_costs(found, (interval_ms,) if interval_ms else (), BUDGETS)))


if __name__ == "__main__":
    main()
