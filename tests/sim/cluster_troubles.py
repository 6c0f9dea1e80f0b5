"""Troubles of a simulated cluster: deaths, stops, cut networks, late uploads, lost leases, clocks, deletions."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from kafscale.cluster.new_topic import NewTopic
from kafscale.errors import StoreError
from kafscale.metadata import keys
from kafscale.protocol.error_codes import KafkaError
from tests.sim.broker_cluster import SimulatedCluster
from tests.sim.simulated_broker import SimulatedBroker
from tests.sim.simulated_metadata import at_once

Trouble = Callable[[], Awaitable[None]]

NEXT_BROKER = 9
"""The id of the first broker that joins later."""


class Troubles:
    """Makes them one after the other, some of which go on while the next one comes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._rng = cluster.rng
        self._going_on: list[asyncio.Task[None]] = []
        self._next_broker_id = NEXT_BROKER
        self._deleting: set[str] = set()
        every: dict[str, Trouble] = {
            "kill": self._kill,
            "pause": self._pause,
            "late upload": self._pause_with_a_late_upload,
            "late answers": self._pause_with_late_answers,
            "stop": self._stop,
            "cut": self._cut,
            "delay": self._delay,
            "end lease": self._end_lease,
            "set clock": self._set_clock,
            "add broker": self._add_broker,
            "delete records": self._delete_records,
            "delete topic": self._delete_topic,
        }
        self._kinds = [every[kind] for kind in cluster.plan.kinds]

    async def run(self) -> None:
        """Everything that the plan has of them."""
        plan, rng = self._cluster.plan, self._rng
        for _ in range(plan.troubles):
            await asyncio.sleep(rng.random() * plan.longest_calm)
            await rng.choice(self._kinds)()
        await asyncio.sleep(rng.random() * plan.longest_calm)

    async def end(self) -> None:
        """Let what still goes on come to its end."""
        await asyncio.gather(*self._going_on)

    def _meanwhile(self, work: Awaitable[None]) -> None:
        async def go_on() -> None:
            await work

        self._going_on.append(asyncio.create_task(go_on()))

    def _victim(self) -> SimulatedBroker | None:
        living = [one for one in self._cluster.living() if not one.process.is_stopped and not one.is_ending]
        return self._rng.choice(living) if living else None

    def _time(self, longest_ttls: float) -> float:
        return self._rng.random() * longest_ttls * self._cluster.plan.lease_ttl

    async def _restart_later(self, broker_id: int) -> None:
        await asyncio.sleep(self._time(1.5))
        found = self._cluster.brokers.get(broker_id)
        if found is not None and found.is_dead:
            self._cluster.start_broker(broker_id)

    async def _kill(self) -> None:
        broker = self._victim()
        if broker is not None:
            broker.kill()
            self._meanwhile(self._restart_later(broker.broker_id))

    async def _pause(self) -> None:
        broker = self._victim()
        if broker is not None:
            broker.pause()
            self._meanwhile(self._go_on_later(broker))

    async def _go_on_later(self, broker: SimulatedBroker) -> None:
        await asyncio.sleep(self._time(self._rng.choice((0.5, 3.0))))
        if not broker.is_dead:
            broker.go_on()

    async def _pause_with_a_late_upload(self) -> None:
        """Everything sent by then arrives when others lead, and perhaps before it wakes."""
        broker = self._victim()
        if broker is None:
            return
        longest = self._rng.choice((1.0, 4.0)) * self._cluster.plan.lease_ttl
        for link in self._rng.choice(((broker.objects_link,), (broker.objects_link, broker.metadata_link))):
            link.extra_delay = longest
        await asyncio.sleep(self._rng.random())
        broker.pause()
        await asyncio.sleep(self._time(2.0))
        for link in (broker.objects_link, broker.metadata_link):
            link.extra_delay = 0.0
        if not broker.is_dead:
            broker.go_on()

    async def _pause_with_late_answers(self) -> None:
        """Everything uploaded by then is committed, and when it hears of that others lead."""
        broker = self._victim()
        if broker is None:
            return
        broker.objects_link.answer_delay = self._cluster.plan.lease_ttl
        await asyncio.sleep(self._rng.random())
        broker.pause()
        broker.objects_link.answer_delay = 0.0
        self._meanwhile(self._go_on_later(broker))

    async def _stop(self) -> None:
        broker = self._victim()
        if broker is not None:
            broker.stop()
            self._meanwhile(self._restart_when_ended(broker))

    async def _restart_when_ended(self, broker: SimulatedBroker) -> None:
        await broker.ended
        await self._restart_later(broker.broker_id)

    async def _cut(self) -> None:
        broker = self._victim()
        if broker is None:
            return
        both = (broker.metadata_link, broker.objects_link)
        links = self._rng.choice(((both[0],), (both[1],), both))
        for link in links:
            self._cluster.trace.add(link.name, "is cut from now on")
            link.cut()

        async def mend_later() -> None:
            await asyncio.sleep(self._time(2.0))
            for link in links:
                self._cluster.trace.add(link.name, "is mended")
                link.mend()

        self._meanwhile(mend_later())

    async def _delete_records(self) -> None:
        """Deletes all that every consumer has read, at a broker that leads or takes itself for the leader."""
        logs = sorted(self._cluster.invariants.logs.values(), key=str)
        if not logs:
            return
        log = self._rng.choice(logs)
        positions = [one.position for one in self._cluster.consumers if one.log is log]
        if not positions and self._cluster.plan.consumers:
            return  # Those of a topic that was just made again begin at 0, once the answer to its creation is there.
        offset = min(positions, default=log.record.log_end_offset)
        led_by = [
            (broker, partition)
            for broker in self._cluster.brokers_up()
            if (partition := broker.logs.partition(log.name, log.index)) is not None
        ]
        if not led_by or not offset:
            return
        broker, partition = self._rng.choice(led_by)
        log.may_start_at = max(log.may_start_at, offset)
        self._cluster.trace.add(broker.name, f"is asked to delete the records of {log} below", offset)

        async def delete() -> None:
            try:
                await broker.broker.serving.segment_life.record_deletion.delete_before(partition, offset)
            except (KafkaError, StoreError) as problem:
                self._cluster.trace.add(broker.name, f"does not delete the records of {log}: {problem}")

        broker.process.run(delete(), "delete records")

    async def _delay(self) -> None:
        """Uploads of one broker are slow for a while, so that many of them are in progress when something happens."""
        broker = self._victim()
        if broker is None:
            return
        link = self._rng.choice((broker.objects_link, broker.metadata_link))
        link.extra_delay = self._time(4.0)
        self._cluster.trace.add(link.name, "is slow from now on")

        async def hurry_later() -> None:
            await asyncio.sleep(self._time(2.0))
            link.extra_delay = 0.0

        self._meanwhile(hurry_later())

    async def _end_lease(self) -> None:
        """The store forgets a lease whose broker lives: it finds out when it renews."""
        items = self._cluster.metadata.everything(keys.BROKERS).items
        if items:
            item = self._rng.choice(items)
            self._cluster.trace.add("the world", "ends the lease of", item.key)
            at_once(self._cluster.metadata.revoke_lease(item.lease))

    async def _set_clock(self) -> None:
        broker = self._victim()
        if broker is not None:
            broker.clock.skew_ms += self._rng.randint(-20_000, 20_000)
            self._cluster.trace.add(broker.name, "has its clock set")

    async def _add_broker(self) -> None:
        if len(self._cluster.brokers) < self._cluster.plan.brokers + 1:
            self._cluster.start_broker(self._next_broker_id)
            self._next_broker_id += 1

    async def _delete_topic(self) -> None:
        name = self._rng.choice(list(self._cluster.plan.topics))
        topic = self._cluster.topic(name)
        up = self._cluster.brokers_up()
        if topic is not None and up and name not in self._deleting:
            self._deleting.add(name)
            self._ask(self._rng.choice(up), "delete", name)
            self._meanwhile(self._create_again(name, topic.topic_id))

    async def _create_again(self, name: str, deleted: uuid.UUID) -> None:
        """Ask one broker after the other, as soon as the name is free, until the topic is there."""
        while True:
            await asyncio.sleep(0.5 + self._rng.random())
            up = self._cluster.brokers_up()
            if self._cluster.metadata.now(keys.topic(name)) is None:
                if up:
                    self._ask(self._rng.choice(up), "create", name)
                continue
            topic = self._cluster.topic(name)
            if topic is not None and topic.topic_id != deleted:
                break
            if topic is not None and up:
                self._ask(self._rng.choice(up), "delete", name)
        self._deleting.discard(name)
        self._cluster.start_consumers(name)

    def _ask(self, broker: SimulatedBroker, what: str, name: str) -> None:
        """As a client's request: it is not given up when it takes long.

        The handler of DeleteTopics looks the name up at once, and means that topic and no later one of the name.
        """
        services = broker.broker.serving.services
        topics, record = services.topics, services.view.topic(name)
        new = NewTopic(name=name, partition_count=self._cluster.plan.topics[name])

        async def work() -> None:
            try:
                if what == "create":
                    await topics.create(new, timeout_ms=5_000)
                elif record is not None:
                    await topics.delete(name, topic_id=record.topic_id, timeout_ms=5_000)
            except (KafkaError, StoreError) as problem:
                self._cluster.trace.add(broker.name, f"could not {what} {name}: {problem}")

        self._cluster.trace.add(broker.name, f"is asked to {what} {name}")
        broker.process.run(work(), f"{what} {name}")
