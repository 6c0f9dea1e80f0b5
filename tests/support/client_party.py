"""All clients at work on a cluster: a producer of each kind, and a consumer of each that reads them all."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support import wire
from tests.support.client_consumers import CONSUMERS, ClientConsumer, client_consumer
from tests.support.flows import FLOWS, Flow
from tests.support.group_work import committed_offsets
from tests.support.java_groups import JavaGroups
from tests.support.ledger import Place
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.zoned_cluster import ZonedCluster

PARTITIONS = 3  # of each producer's topic, one of each broker
PRODUCERS = ("java", *FLOWS)
MORE = 3  # records of each partition, to show that a client continues
JAVA_PAUSE_MS = 100

Stored = Mapping[Place, list[tuple[int, bytes | None]]]
"""Offset and value of every record of each partition."""


class ClientParty:
    """The clients' work, from their start to `finish`. `topics`: each producer's; `groups`: each consumer's."""

    def __init__(self, cluster: ZonedCluster) -> None:
        self.cluster = cluster
        self.topics = {client: cluster.topic(PARTITIONS) for client in PRODUCERS}
        brokers = sorted(cluster.brokers)
        self.groups = {
            client: cluster.group_at(brokers[number % len(brokers)])
            for number, client in enumerate(CONSUMERS)
        }
        self.flows: dict[str, Flow] = {}
        self.consumers: dict[str, ClientConsumer] = {}
        self._java_sent: Mapping[Place, list[str]] = {}
        self._producing = contextlib.ExitStack()

    @contextlib.contextmanager
    def at_work(
        self,
        java: JavaGroups,
        folder: Path,
        producers: Mapping[str, Mapping[str, Any]],
        consumers: Mapping[str, Any],
    ) -> Iterator[None]:
        """All clients work in the block. `producers`: settings of each; `consumers`: of all (Java's names)."""
        with contextlib.ExitStack() as stack:
            for client, group in self.groups.items():
                consumer = client_consumer(
                    client,
                    self.cluster,
                    group,
                    list(self.topics.values()),
                    java=java,
                    folder=folder,
                    **consumers,
                )
                self.consumers[client] = stack.enter_context(consumer)
            with self._producing:
                self._start_producers(java, producers)
                self.all_go_on("at the start", 30.0)
                yield

    def _start_producers(self, java: JavaGroups, settings: Mapping[str, Mapping[str, Any]]) -> None:
        config = {name.replace("_", "."): value for name, value in settings.get("java", {}).items()}
        self._java_sent = self._producing.enter_context(
            java.flow(self.topics["java"], PARTITIONS, pause_ms=JAVA_PAUSE_MS, config=config)
        )
        for client, kind in FLOWS.items():
            flow = kind(self.cluster.bootstrap, self.topics[client], PARTITIONS, **settings.get(client, {}))
            self.flows[client] = self._producing.enter_context(flow)

    # --- meanwhile

    def all_go_on(self, when: str, timeout_s: float) -> float:
        """Wait until every consumer has read more of every producer in every partition; returns the seconds.

        Raises AssertionError when a producer has given up a record or a consumer has failed.
        """
        began = time.monotonic()
        before = {
            client: {place: len(read) for place, read in consumer.read().items()}
            for client, consumer in self.consumers.items()
        }
        places = [(topic, index) for topic in self.topics.values() for index in range(PARTITIONS)]

        def goes_on(client: str) -> bool:
            self.check_producers()
            read = self.consumers[client].read()
            return all(len(read.get(place, ())) >= before[client].get(place, 0) + MORE for place in places)

        seconds = {}
        for client in self.consumers:
            wait_until(lambda: goes_on(client), f"{client} goes on {when}", timeout_s)  # noqa: B023
            seconds[client] = time.monotonic() - began
        print(f"{when}: " + ", ".join(f"{client} {took:.2f} s" for client, took in seconds.items()))
        return max(seconds.values())

    def check_producers(self) -> None:
        """Raises AssertionError if a producer has failed to deliver a record."""
        for flow in self.flows.values():
            flow.acknowledged()

    def silences(self, since: float, until: float) -> dict[str, list[float]]:
        """For each producer and partition the longest time in that span without an acknowledgement."""
        return {client: flow.silences(since, until) for client, flow in self.flows.items()}

    # --- the end

    def finish(self) -> Stored:
        """Stop the producers; consumers read and commit all. Returns the stored records."""
        self._producing.close()
        self.check_producers()
        stored = {
            (topic, index): self._stored(topic, index)
            for topic in self.topics.values()
            for index in range(PARTITIONS)
        }
        for client, consumer in self.consumers.items():
            for place, records in stored.items():
                last = records[-1][0]
                wait_until(
                    lambda: last in consumer.read().get(place, ()),  # noqa: B023
                    f"{client} has read {place} to {last}",
                    PATIENCE_SEC,
                )
        for client, group in self.groups.items():
            wanted = {place: records[-1][0] + 1 for place, records in stored.items()}
            wait_until(
                lambda: self._committed(group, list(wanted)) == wanted,  # noqa: B023
                f"{client} has committed {wanted}",
                PATIENCE_SEC,
            )
        return stored

    def _stored(self, topic: str, index: int) -> list[tuple[int, bytes | None]]:
        with wire.connect(self.cluster.leader(topic, index)) as connection:
            return wire.read_all(connection, topic, index)

    def _committed(self, group: str, places: list[Place]) -> dict[Place, int]:
        return committed_offsets(self.cluster.brokers[self.cluster.coordinator(group)], group, places)

    def sent(self, client: str, index: int) -> list[bytes]:
        """The values that a producer sent to a partition, in that order; after `finish`."""
        if client == "java":
            return [value.encode() for value in self._java_sent[self.topics["java"], index]]
        return self.flows[client].values(index)

    def assert_stored_once(self, stored: Stored, *clients: str, in_order: bool) -> None:
        """Every record of these producers is stored once; `in_order`: in the order in which it was sent."""
        for client in clients:
            for index in range(PARTITIONS):
                values = [value for _, value in stored[self.topics[client], index]]
                sent = self.sent(client, index)
                assert len(values) == len(sent), (
                    f"{client}, partition {index}: {len(sent)} sent, {len(values)} stored, "
                    f"twice: {twice(values)[:5]}, lost: {sorted(set(sent) - set(values))[:5]}"
                )
                assert set(values) == set(sent), f"{client}, partition {index}: others than were sent"
                assert not in_order or values == sent, f"{client}, partition {index}: not in order"

    def assert_read_once_in_order(self, stored: Stored, *clients: str) -> None:
        """These consumers have read all stored records, each once and in order."""
        for client in clients:
            read = self.consumers[client].read()
            for place, records in stored.items():
                offsets = [offset for offset, _ in records]
                assert list(read[place]) == offsets, (
                    f"{client}, {place}: {len(offsets)} stored, {len(read[place])} read, "
                    f"twice: {twice(read[place])[:5]}, skipped: {sorted(set(offsets) - set(read[place]))[:5]}"
                )


def twice(values: Any) -> list[Any]:
    """The values that occur for at least the second time."""
    seen: set[Any] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]
