"""How long partitions go without an acknowledgement when their leader stops or dies: `python -m bench.failover`.

Three brokers on etcd and an S3 server of this machine, one topic. A few of the partitions that one broker leads
are written to all the time, each by a producer of its own that waits for every acknowledgement, goes to the leader
that a refusal names (KIP-951), as Java's does, or else fetches metadata, and retries after 5 ms. Then that broker
is stopped, or killed.
"""

import contextlib
import itertools
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from kafka.protocol.producer import ProduceResponse

from kafscale.protocol.node_endpoints import NO_LEADER
from tests.support import wire
from tests.support.cluster import AWAY, Cluster, ClusterStores, running_cluster
from tests.support.etcd_server import etcd_server
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, s3_server

TOPIC = "failover"
PRODUCE_VERSION = 10  # the first that names a leader
PAUSE_SEC = 0.005
ANSWER_TIMEOUT_SEC = 30.0
STEADY_SEC = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The effect of one stop or kill. The gaps are those of the partitions that were written to, in seconds."""

    what: str
    gaps_sec: list[float]
    usual_gap_sec: float
    leads_before: dict[int, int]
    leads_after: dict[int, int]


class Leaders:
    """The current leaders, fetched for all producers together: a client for each would measure this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._known: dict[int, int] = {}

    def leader(self, partition: int, asked_after: float) -> int:
        """The partition's leader from metadata that was requested after `asked_after`."""
        with self._lock:
            if self._asked_at <= asked_after:
                asked_at = time.monotonic()
                self._known = self._cluster.leaders(TOPIC)
                self._asked_at = asked_at
            return self._known[partition]


class Producer(threading.Thread):
    """Writes to one partition, one record after the other, and notes when each was acknowledged."""

    def __init__(self, cluster: Cluster, leaders: Leaders, partition: int, stop: threading.Event) -> None:
        super().__init__(name=f"producer of {partition}")
        self.acknowledged_at: list[float] = []
        self._cluster = cluster
        self._leaders = leaders
        self._partition = partition
        self._stop_event = stop

    def run(self) -> None:
        """Write until stopped."""
        named = NO_LEADER
        while not self._stop_event.is_set():
            leader, named = named, NO_LEADER
            with contextlib.suppress(*AWAY, AssertionError, KeyError):
                if leader == NO_LEADER:
                    leader = self._leaders.leader(self._partition, time.monotonic())
                named = self._write_to(leader)
            time.sleep(PAUSE_SEC)

    def _write_to(self, broker_id: int) -> int:
        """Write until a record is refused; returns the leader that the refusal names, `NO_LEADER` without one."""
        with wire.connect(self._cluster.brokers[broker_id], ANSWER_TIMEOUT_SEC) as connection:
            while not self._stop_event.is_set():
                request = wire.produce_request(TOPIC, {self._partition: wire.batch([b"x" * 100])})
                reply = connection.call(request, ProduceResponse, PRODUCE_VERSION)
                answered = reply.responses[0].partition_responses[0]
                if answered.error_code:
                    leader = answered.current_leader
                    return NO_LEADER if leader is None else int(leader.leader_id)
                self.acknowledged_at.append(time.monotonic())
                time.sleep(PAUSE_SEC)
        return NO_LEADER

    def gap_sec(self, since: float) -> float:
        """The longest time without an acknowledgement that ended after `since`."""
        times = self.acknowledged_at
        return max(
            (after - before for before, after in itertools.pairwise(times) if after > since),
            default=float("inf"),
        )


def measure(cluster: Cluster, what: str, written: int, lease_ttl_sec: int) -> Round:
    """Stop or kill a broker under load, and start it again afterwards."""
    cluster.wait_until_led(TOPIC)
    before = cluster.leaders(TOPIC)
    victim = max(cluster.live)
    stop = threading.Event()
    own = [partition for partition, leader in sorted(before.items()) if leader == victim]
    leaders = Leaders(cluster)
    producers = [Producer(cluster, leaders, partition, stop) for partition in own[:written]]
    try:
        for producer in producers:
            producer.start()
        time.sleep(STEADY_SEC)
        since = time.monotonic()
        usual = statistics.median(producer.gap_sec(since - STEADY_SEC / 2) for producer in producers)
        if what == "kill -9":
            cluster.kill(victim)
        else:
            cluster.stop(victim)
        deadline = time.monotonic() + 3 * lease_ttl_sec + 10
        while time.monotonic() < deadline and not all(
            producer.acknowledged_at
            and producer.acknowledged_at[-1] > since + usual + 1
            and producer.gap_sec(since) > usual
            for producer in producers
        ):
            time.sleep(0.05)
        time.sleep(STEADY_SEC)
        after = cluster.leaders(TOPIC)
    finally:
        stop.set()
        for producer in producers:
            producer.join()
    cluster.start(victim)
    return Round(
        what=what,
        gaps_sec=sorted(producer.gap_sec(since) for producer in producers),
        usual_gap_sec=usual,
        leads_before=dict(sorted(Counter(before.values()).items())),
        leads_after=dict(sorted(Counter(after.values()).items())),
    )


@contextlib.contextmanager
def three_brokers(folder: Path, lease_ttl_sec: int) -> Iterator[Cluster]:
    """A cluster on servers of its own."""
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(etcd_server(folder / "etcd"))
        s3 = stack.enter_context(s3_server(folder / "s3"))
        stores = ClusterStores(
            etcd_endpoints=[etcd.endpoint],
            s3_endpoint=s3.endpoint,
            s3_bucket=s3.bucket,
            s3_access_key=ACCESS_KEY,
            s3_secret_key=SECRET_KEY,
        )
        cluster = stack.enter_context(
            running_cluster(folder, stores, lease_ttl_sec=lease_ttl_sec, flush_interval_ms=0)
        )
        yield cluster


@click.command(help="Measure the time without acknowledgements when a broker stops or dies. Asserts nothing.")
@click.option("--partitions", default=1000, show_default=True, type=click.IntRange(min=3))
@click.option("--written", default=6, show_default=True, type=click.IntRange(min=1), help="Of the victim's.")
@click.option("--lease-ttl", default=10, show_default=True, type=click.IntRange(2, 3600), help="Seconds.")
@click.option("--repeat", "repeats", default=3, show_default=True, type=click.IntRange(min=1))
def main(partitions: int, written: int, lease_ttl: int, repeats: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-failover-") as folder,
        three_brokers(Path(folder), lease_ttl) as cluster,
    ):
        cluster.create_topic(TOPIC, partitions)
        click.echo(
            f"{partitions} partitions, 3 brokers, lease {lease_ttl} s, {written} partitions written to"
        )
        click.echo(f"{'':12} {'median s':>9} {'longest s':>9} {'usual s':>9}  leads before -> after")
        for _ in range(repeats):
            for what in ("stop", "kill -9"):
                _print(measure(cluster, what, written, lease_ttl))


def _print(done: Round) -> None:
    median = statistics.median(done.gaps_sec)
    click.echo(
        f"{done.what:12} {median:9.3f} {done.gaps_sec[-1]:9.3f} {done.usual_gap_sec:9.3f}  "
        f"{_shares(done.leads_before)} -> {_shares(done.leads_after)}"
    )


def _shares(leads: dict[int, int]) -> str:
    return " ".join(f"{broker}:{count}" for broker, count in leads.items())


if __name__ == "__main__":
    main()
