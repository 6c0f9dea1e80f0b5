"""One chaos run: a cluster with producers and consumers, episodes of trouble, and the checker's verdict."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.compat.tools import java_missing
from tests.support import wire
from tests.support.cluster import Cluster
from tests.support.cluster_load import PAUSE_S, ClusterLoad, DirectLoad, JavaLoad, RetryingLoad
from tests.support.cluster_readers import ClientReader, GroupReader, OneBrokerReader, Reader
from tests.support.history import History
from tests.support.history_checker import Report, examine
from tests.support.ledger import Place, Record, Sent
from tests.support.load import Load
from tests.support.nemesis import Etcd, Scene, Trouble
from tests.support.object_store_proxy import ObjectStoreProxy
from tests.support.waiting import PATIENCE_SEC, NotInTimeError, wait_until

TOPIC = "t"
GROUP = "group"
PARTITIONS = 6
PLACES: list[Place] = [(TOPIC, partition) for partition in range(PARTITIONS)]
LEASE_TTL_S = 2
ZONES = {1: "zone-a", 2: "zone-b", 3: "zone-c"}
SETTINGS: dict[str, object] = {
    "lease_ttl_sec": LEASE_TTL_S,
    "flush_interval_ms": 100,
    "group_initial_rebalance_delay_ms": 100,
    "log_level": "info",
    # Segments are merged all the time.
    "merge_min_segments": 2,
    "merge_check_interval_ms": 300,
    "garbage_grace_sec": 60,
    "garbage_check_interval_sec": 5,
}
END_TIMEOUT_S = 120.0


class ChaosRun:
    """Producers and consumers at work on a cluster, from `start` to `finish`. `final`: what was read at its end."""

    def __init__(
        self, folder: Path, cluster: Cluster, etcd: Etcd, proxy: ObjectStoreProxy, generator: random.Random
    ) -> None:
        self.cluster = cluster
        self.history = History()
        self._began_s = time.monotonic()
        self.scene = Scene(
            cluster=cluster,
            topic=TOPIC,
            etcd=etcd,
            proxy=proxy,
            history=self.history,
            generator=generator,
            lease_ttl_s=LEASE_TTL_S,
            say=self.say,
        )
        self._folder = folder
        self._judged = False
        self.final: dict[Place, list[Record]] = {}
        self._loads: list[Load] = []
        self._java: list[JavaLoad] = []
        self._readers: list[Reader] = []
        self._group: list[GroupReader] = []

    def start(self, *, direct: bool = True, java: bool = False) -> None:
        """Create the topic and start all clients; `direct`: also a producer without retries."""
        cluster, history = self.cluster, self.history
        cluster.create_topic(TOPIC, PARTITIONS)
        self._loads = [
            ClusterLoad("idempotent", cluster, PLACES, history),
            ClusterLoad("compressing", cluster, PLACES[:2], history, compression_type="lz4"),
            RetryingLoad("retrying", cluster, PLACES[1:5], history),
        ]
        if direct:
            self._loads.append(DirectLoad("direct", cluster, PLACES[:3], history))
        if java and java_missing() is None:
            self._java = [JavaLoad(1, self._folder, cluster, TOPIC, history)]
        self._group = [GroupReader(f"member-{n}", cluster, PLACES, history, GROUP) for n in range(2)]
        self._readers = [
            ClientReader("client", cluster, PLACES, history),
            ClientReader("client-in-zone-b", cluster, PLACES, history, **{"client.rack": ZONES[2]}),
            *(OneBrokerReader(f"of-broker-{n}", cluster, n, PLACES, history) for n in cluster.brokers),
        ]
        for worker in (*self._loads, *self._readers, *self._group):
            worker.start()
        for java_load in self._java:
            java_load.start()
        self.all_progress()

    def start_producer(self, pauses_s: Mapping[str, float] | None = None) -> None:
        """Create the topic, and start one idempotent producer alone, for other clients to work on its records.

        `pauses_s`: instead of the one, producers of these names with these pauses.
        """
        self.cluster.create_topic(TOPIC, PARTITIONS)
        self._loads = [
            ClusterLoad(name, self.cluster, PLACES, self.history, pause_s)
            for name, pause_s in (pauses_s or {"idempotent": PAUSE_S}).items()
        ]
        for load in self._loads:
            load.start()
        self.all_progress()

    def run(self, troubles: Sequence[Trouble], seconds: float) -> dict[str, int]:
        """Episodes of trouble one after the other for that long, each kind at least once; returns their counts."""
        generator, done = self.scene.generator, dict.fromkeys((one.__name__ for one in troubles), 0)
        until = time.monotonic() + seconds
        deck: list[Trouble] = []
        while not all(done.values()) or time.monotonic() < until:
            deck = deck or generator.sample(list(troubles), len(troubles))
            trouble = deck.pop()
            trouble(self.scene)
            self.cluster.check_alive()
            self.history.check_producers()
            done[trouble.__name__] += 1
            self.all_progress()
        return done

    def all_progress(self) -> None:
        """Wait until every producer has a new acknowledgement."""
        before, names = self.history.count(), {load.name for load in self._loads}
        java = {one.name: one.acknowledged_count() for one in self._java}

        def progress() -> bool:
            self.cluster.check_alive()
            self.history.check_producers()
            return names <= self.history.producers(before) and all(
                one.acknowledged_count() > java[one.name] for one in self._java
            )

        began = time.monotonic()
        wait_until(progress, "every producer is acknowledged something", END_TIMEOUT_S)
        self.say(f"every producer goes on, after {time.monotonic() - began:.2f} s")

    def finish(self) -> Report:
        """With the cluster healthy again: stop producers, let consumers catch up; the report of the whole run."""
        self.cluster.heal()
        self.cluster.wait_until_led(TOPIC)
        self._end_producers()
        final = {place: self.cluster.read_all_sent(place) for place in PLACES}
        self._wait_for_readers({place: log[-1].offset if log else -1 for place, log in final.items()})
        self._read_from_every_broker()
        self._end_readers()
        self.history.check_producers()
        return self._judge(final)

    def print_what_is_known(self) -> None:
        """For a run that failed before its report: the checker's findings so far."""
        if self._judged:
            return
        try:
            self.cluster.heal()
            self.cluster.wait_until_led(TOPIC)
            self._end_producers()
            self._end_readers()
            self._judge({place: self.cluster.read_all_sent(place) for place in PLACES})
        except Exception as error:  # noqa: BLE001  (what the test failed of is to be seen, not this)
            self.say(f"there is no report of this run: {error!r}")

    def _judge(self, sent: Mapping[Place, Sequence[Sent]]) -> Report:
        """Print the verdict."""
        final = {place: [(one.offset, one.value) for one in records] for place, records in sent.items()}
        report = examine(replace(self.history.evidence(final), sent=sent))
        self._judged = True
        self.final = final
        print(f"not acknowledged: {self.history.reasons() or 'nothing'}\n{report.table()}", flush=True)
        print(f"gaps that brokers passed: {self.gaps()[:3] or 'none'}", flush=True)
        return report

    def gaps(self) -> list[str]:
        """The log lines of brokers that passed offsets without a segment: there are none in a new bucket."""
        lines = (line for broker in self.cluster.brokers.values() for line in broker.log_text().splitlines())
        return [line for line in lines if "passes offsets that no segment has" in line]

    def close(self) -> None:
        """Stop every thread and process of the run, whatever happened."""
        for worker in (*self._loads, *self._readers, *self._group):
            worker.stop()
        for worker in (*self._loads, *self._readers, *self._group):
            if worker.started:
                worker.join(END_TIMEOUT_S)
        for java in self._java:
            java.close()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began_s:6.2f} s: {what}", flush=True)

    def _wait_for_readers(self, ends: dict[Place, int]) -> None:
        def caught_up(reader: Reader) -> bool:
            self.history.check_producers()
            return reader.has_seen(ends)

        def group_caught_up() -> bool:
            self.history.check_producers()
            return all(
                max(one.journal.last(place) for one in self._group) >= end for place, end in ends.items()
            )

        for reader in self._readers:
            try:
                wait_until(partial(caught_up, reader), f"{reader.name} has seen all", END_TIMEOUT_S)
            except NotInTimeError:
                self._say_what_lacks(reader, ends)
                raise
        if self._group:
            wait_until(group_caught_up, "the group has seen all", END_TIMEOUT_S)

    def _say_what_lacks(self, reader: Reader, ends: dict[Place, int]) -> None:
        """The reader's position, and the records that each broker serves from there on."""
        for place, end in ends.items():
            last = reader.journal.last(place)
            if last >= end:
                continue
            self.say(f"{reader.name} has seen {place} to {last} of {end}")
            for broker_id, broker in self.cluster.brokers.items():
                with wire.connect(broker) as connection:
                    part = wire.fetch(connection, place[0], {place[1]: last + 1}, max_wait_ms=1000)[place[1]]
                    offsets = [offset for offset, _ in wire.records_in(part.records)]
                    self.say(
                        f"  broker {broker_id}: error {part.error_code}, {offsets[:1]} to {offsets[-1:]}, "
                        f"high watermark {part.high_watermark}"
                    )

    def _read_from_every_broker(self) -> None:
        """All brokers serve all records; their answers are checked like those of any consumer."""
        for broker_id in self.cluster.brokers:
            journal = self.history.reader(f"final-of-broker-{broker_id}")
            for place in PLACES:
                journal.begin(place, 0)
                for offset, value in self.cluster.read_all(place, broker_id):
                    journal.see(place, offset, value)

    def _end_producers(self) -> None:
        for load in self._loads:
            load.stop()
        for load in self._loads:
            load.join(END_TIMEOUT_S)
        for java in self._java:
            java.finish()

    def _end_readers(self) -> None:
        for reader in (*self._readers, *self._group):
            reader.stop()
        for reader in (*self._readers, *self._group):
            reader.join(PATIENCE_SEC)
