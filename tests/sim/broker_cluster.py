"""A cluster of real brokers in one process and in virtual time, with its stores, networks and clients.

Everything that happens follows from the seed: how bad the networks are, who is killed when, what arrives late.
"""

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kafscale.formats.partition_record import PartitionRecord, encode_partition_record
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import Put
from kafscale.settings.broker import Settings
from tests.sim.invariants import Invariants
from tests.sim.links import Conditions, Link
from tests.sim.process_loop import WORLD
from tests.sim.simulated_broker import Clock, ErrorLog, SimulatedBroker
from tests.sim.simulated_clients import Client, Consumer
from tests.sim.simulated_metadata import LinkedMetadata, SimulatedMetadata, at_once
from tests.sim.simulated_objects import LinkedObjects, SimulatedBucket
from tests.sim.simulated_producers import IdempotentProducer, Load, PlainProducer, Producer
from tests.sim.simulated_transactions import CommittedConsumer, Job, TransactionLoad
from tests.sim.trace import Trace
from tests.support.history import History
from tests.support.transaction_history import TransactionHistory

RACKS = ("", "a", "b")
TROUBLES = (
    "kill",
    "pause",
    "late upload",
    "stop",
    "cut",
    "delay",
    "end lease",
    "set clock",
    "add broker",
    "delete records",
)
"""Troubles of a broker; see cluster_troubles.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a run. Times in seconds."""

    brokers: int
    topics: dict[str, int]
    lease_ttl: int
    flush_interval_ms: int
    flushes_per_sec: int
    flushes_in_flight: int
    seal_interval_ms: int
    seal_max_age_ms: int
    transactions_at_once: int
    checkpoint_segments: int
    superseded_grace_ms: int
    garbage_grace: int
    garbage_interval: int
    merge_min_segments: int
    merge_interval_ms: int
    removal_grace: float
    metadata: Conditions
    objects: Conditions
    clients: Conditions
    longest_skew_ms: int
    racks: bool
    hop_rate: float
    idempotent_producers: int
    plain_producers: int
    consumers: int
    load: Load
    troubles: int
    longest_calm: float
    kinds: tuple[str, ...]
    stops_well: bool
    in_flight: tuple[int, ...] = (
        1,
        2,
        5,
    )  # at most so many batches of a producer: one of these for all of a run
    hedged_percent: int = 30
    paces_flushes: bool = False  # of an interval of 0: if not, more are in flight together, which finds more
    keys: int = 0  # of the records; topics with keys are compacted
    drain_rate: float = 0.5  # of producers that wait before they go on with another leader
    jobs: tuple[TransactionLoad, ...] = ()  # each reads a partition and writes to OUTPUT, with transactions
    outputs: int = 2

    @staticmethod
    def of(rng: random.Random) -> "Plan":
        """Some runs have much of one kind of trouble and nothing of another: that finds more than an even mix."""

        def faults(timeout: float) -> Conditions:
            fault_rate = rng.choice((0.0, 0.0, 0.05, 0.15, 0.3))
            longest_delay = rng.choice((0.005, 0.03, 0.3))
            return Conditions(
                fault_rate=fault_rate,
                longest_delay=longest_delay,
                latest_effect=rng.choice((2.0, 6.0, 20.0)),
                turn_sec=longest_delay / 4 if fault_rate else 0.0,
                timeout=timeout,
                break_rate=rng.choice((0.0, 0.02, 0.2)),
            )

        return Plan(
            brokers=rng.choice((2, 2, 3, 3, 4)),
            topics={"t": rng.choice((1, 1, 1, 2, 2, 4))},
            lease_ttl=rng.choice((2, 4)),
            flush_interval_ms=rng.choice((0, 50, 500)),
            flushes_per_sec=rng.choice((0, 4, 1000)),
            flushes_in_flight=rng.choice((1, 2, 4)),
            seal_interval_ms=rng.choice((50, 500, 4_000)),
            seal_max_age_ms=rng.choice((1_000, 1_000, 3_600_000)),
            transactions_at_once=rng.choice((1, 1, 2)),
            checkpoint_segments=rng.choice((2, 3, 5)),
            superseded_grace_ms=rng.choice((0, 2_000)),
            garbage_grace=rng.choice((1, 5)),
            garbage_interval=rng.choice((1, 8)),
            merge_min_segments=rng.choice((2, 2, 3, 1000)),
            merge_interval_ms=rng.choice((100, 500, 3_000)),
            removal_grace=rng.choice((0.0, 1.0, 60.0)),
            metadata=faults(timeout=1.0),
            objects=faults(timeout=1.5),
            clients=Conditions(
                fault_rate=rng.choice((0.0, 0.02, 0.1)), longest_delay=rng.choice((0.003, 0.1))
            ),
            longest_skew_ms=rng.choice((0, 3_000, 600_000)),
            racks=rng.random() < 0.3,
            hop_rate=rng.choice((0.0, 0.1, 0.5)),
            idempotent_producers=rng.choice((1, 1, 2)),
            plain_producers=rng.choice((0, 1)),
            consumers=rng.choice((1, 1, 2)),
            load=Load(batches=rng.choice((4, 6, 10)), longest_pause=rng.choice((0.3, 2.0))),
            troubles=rng.choice((2, 4, 6)),
            longest_calm=rng.choice((0.5, 2.0, 6.0)),
            kinds=tuple(rng.sample(TROUBLES, rng.randrange(2, len(TROUBLES) + 1)))
            + ("delete topic",) * (rng.random() < 0.15) * 2,
            stops_well=(drawn := rng.random()) < 0.4,
            hedged_percent=100 if 0.25 <= drawn < 0.6 else 30,
            paces_flushes=drawn >= 0.5,
        )

    def fresh(self) -> "Plan":
        """The same with conditions of its own: they are changed when the run heals."""
        return replace(
            self,
            metadata=replace(self.metadata),
            objects=replace(self.objects),
            clients=replace(self.clients),
        )

    @property
    def may_delete_topics(self) -> bool:
        """True if names come back."""
        return "delete topic" in self.kinds


OUTPUT = "out"
"""The topic that transactions write to."""

COMPACTED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}


class SimulatedCluster:
    """The stores, the brokers that are there now, and the clients."""

    def __init__(self, rng: random.Random, plan: Plan, error_log: ErrorLog) -> None:
        self.rng = rng
        self.plan = plan
        self.trace = Trace()
        self.history = History()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.client_conditions = plan.clients
        self.keys = plan.keys
        self.invariants = Invariants(self.trace, self._object, self.fail)
        self.metadata = SimulatedMetadata(self.invariants)
        self.bucket = SimulatedBucket(Clock().now_ms, self.invariants)
        self.brokers: dict[int, SimulatedBroker] = {}
        self.all_brokers: list[SimulatedBroker] = []
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.transactions = TransactionHistory()
        self.jobs: list[Job] = []
        self.committed_consumers: list[CommittedConsumer] = []
        self.tasks: list[asyncio.Task[None]] = []
        error_log.fail = self.fail
        asyncio.get_running_loop().set_exception_handler(self._unhandled)

    def _object(self, key: str) -> bytes | None:
        return self.bucket.now(key)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, what: dict[str, object]) -> None:
        self.fail(f"{what.get('message')}: {what.get('exception')!r}")

    def fail(self, message: str) -> None:
        """The first mistake ends the run."""
        self.trace.add("MISTAKE", message)
        if not self.failed.done():
            self.failed.set_result(message)

    # --- topics

    def create_topic(self, name: str, partition_count: int) -> uuid.UUID:
        """A topic as if a broker that is gone had made it."""
        topic_id = uuid.UUID(int=self.rng.getrandbits(128), version=4)
        configs = COMPACTED if self.plan.keys else {}
        record = TopicRecord(name=name, topic_id=topic_id, partition_count=partition_count, configs=configs)
        empty = encode_partition_record(PartitionRecord(leader_epoch=-1))
        puts = [Put(keys.partition(name, index), empty) for index in range(partition_count)]
        self.metadata.transact_as(
            "the world", [], [*puts, Put(keys.topic(name), encode_topic_record(record))]
        )
        return topic_id

    def topic(self, name: str) -> TopicRecord | None:
        """The topic as it stands in the store, None also while it is being deleted."""
        found = self.metadata.now(keys.topic(name))
        if found is None:
            return None
        record = decode_topic_record(found.key, found.value)
        return record if record.state is TopicState.ACTIVE else None

    # --- brokers

    def start_broker(self, broker_id: int) -> SimulatedBroker:
        """Begin a new run of the broker."""
        plan, rng = self.plan, self.rng
        name = f"b{broker_id}.{sum(one.broker_id == broker_id for one in self.all_brokers)}"
        metadata_link = Link(f"{name} meta", rng, plan.metadata, self.trace)
        objects_link = Link(f"{name} bucket", rng, plan.objects, self.trace)
        settings = replace(
            Settings(),
            broker_id=broker_id,
            lease_ttl_sec=plan.lease_ttl,
            flush_interval_ms=plan.flush_interval_ms,
            flushes_per_sec=plan.flushes_per_sec,
            flushes_in_flight=plan.flushes_in_flight,
            s3_hedged_puts_percent=plan.hedged_percent,
            seal_interval_ms=plan.seal_interval_ms,
            seal_max_age_ms=plan.seal_max_age_ms,
            rack=(RACKS[broker_id % 2 + 1] if plan.racks else None),
            shutdown_timeout_ms=5_000,
            buffer_bytes=1 << 20,
            cache_size_bytes=rng.choice((1, 1 << 20)),
            garbage_grace_sec=plan.garbage_grace,
            garbage_check_interval_sec=plan.garbage_interval,
            merge_min_segments=plan.merge_min_segments,
            merge_check_interval_ms=plan.merge_interval_ms,
        )
        broker = SimulatedBroker(
            name,
            settings,
            Clock(skew_ms=rng.randint(-plan.longest_skew_ms, plan.longest_skew_ms)),
            random.Random(rng.getrandbits(64)),
            (LinkedMetadata(self.metadata, metadata_link, name), metadata_link),
            (LinkedObjects(self.bucket, objects_link, name), objects_link),
            self.trace,
        )
        self.trace.add(name, "starts")
        broker.ended.add_done_callback(lambda ended: self._broker_ended(broker, ended.result()))
        self.brokers[broker_id] = broker
        self.all_brokers.append(broker)
        return broker

    def _broker_ended(self, broker: SimulatedBroker, how: str) -> None:
        if how.startswith("could not go on") and "is in use by a live broker" not in how:
            self.fail(f"{broker.name} {how}")
        elif not broker.is_ending and how != "killed":
            asyncio.get_running_loop().call_later(1.0, self._start_if_dead, broker.broker_id, context=WORLD)

    def _start_if_dead(self, broker_id: int) -> None:
        if self.brokers[broker_id].is_dead:
            self.start_broker(broker_id)

    def broker(self, broker_id: int) -> SimulatedBroker | None:
        """See `Surroundings`."""
        found = self.brokers.get(broker_id)
        return found if found is not None and found.is_up else None

    def brokers_up(self) -> list[SimulatedBroker]:
        """See `Surroundings`."""
        return [
            self.brokers[broker_id] for broker_id in sorted(self.brokers) if self.brokers[broker_id].is_up
        ]

    def living(self) -> list[SimulatedBroker]:
        """Brokers that have neither ended nor been killed, whether they can be reached or not."""
        return [
            self.brokers[broker_id]
            for broker_id in sorted(self.brokers)
            if not self.brokers[broker_id].is_dead
        ]

    # --- clients

    def start_clients(self) -> None:
        """All producers, and consumers of every partition."""
        plan, rng = self.plan, self.rng
        places = [(name, index) for name, count in plan.topics.items() for index in range(count)]
        in_flight = 1 if plan.may_delete_topics else rng.choice(plan.in_flight)
        for number in range(plan.idempotent_producers):
            for name, index in places:
                producer = IdempotentProducer(
                    f"p{number}-{index}",
                    self,
                    name,
                    index,
                    plan.load,
                    100 + number,
                    in_flight,
                    drains=rng.random() < plan.drain_rate,
                )
                self._run(producer, producer.run())
                self.producers.append(producer)
        for number in range(plan.plain_producers):
            name, index = rng.choice(places)
            plain = PlainProducer(f"q{number}", self, name, index, plan.load)
            self._run(plain, plain.run())
            self.producers.append(plain)
        for name in plan.topics:
            self.start_consumers(name)
        if plan.jobs:
            self._start_jobs(places)

    def _start_jobs(self, places: list[tuple[str, int]]) -> None:
        """Jobs in transactions, and consumers of what they write."""
        topic_id = self.create_topic(OUTPUT, self.plan.outputs)
        outputs = [self.invariants.logs[OUTPUT, index] for index in range(self.plan.outputs)]
        for log in outputs:
            consumer = CommittedConsumer(f"committed-{log.index}", self, self.transactions, log, topic_id)
            self.committed_consumers.append(consumer)
            self._run(consumer, consumer.run())
        for number, load in enumerate(self.plan.jobs):
            source = self.invariants.logs[places[number % len(places)]]
            topic = self.topic(source.name)
            assert topic is not None
            job = Job(f"x{number}", self, self.transactions, load, source, topic.topic_id, outputs)
            self.jobs.append(job)
            self._run(job, job.run())

    def start_consumers(self, name: str) -> None:
        """Consumers of each partition of a topic that is there now."""
        topic = self.topic(name)
        assert topic is not None
        for index in range(topic.partition_count):
            log = self.invariants.logs[name, index]
            for number in range(self.plan.consumers):
                rack = self.rng.choice(RACKS) if self.plan.racks else ""
                consumer = Consumer(f"c{number}-{log}", self, log, topic.topic_id, rack, self.plan.hop_rate)
                self.consumers.append(consumer)
                self._run(consumer, consumer.run())

    def _run(self, client: Client | Job, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=client.name)
        task.add_done_callback(self._client_ended)
        self.tasks.append(task)

    def _client_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.fail(f"client {task.get_name()}: {problem!r}")

    # --- the end

    def heal(self) -> None:
        """Nothing goes wrong from now on; what is in flight still arrives."""
        self.trace.add("the world", "heals")
        for conditions in (self.plan.metadata, self.plan.objects, self.plan.clients):
            conditions.fault_rate = conditions.break_rate = 0.0
        for broker in self.all_brokers:
            for link in (broker.metadata_link, broker.objects_link):
                link.extra_delay = link.answer_delay = 0.0
                link.mend()

    def end(self) -> None:
        """Let everything run that was stopped, so that it can be cancelled."""
        for broker in self.all_brokers:
            broker.process.clear_away()
        at_once(self.metadata.close())


@contextlib.contextmanager
def errors_logged() -> Iterator[ErrorLog]:
    """Nothing is logged by the code under test but errors, which are looked at."""
    logger = logging.getLogger("kafscale")
    handler, level, propagates = ErrorLog(), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
