"""Members of consumer groups made with three clients, each on a thread of its own, seen through one surface."""

import asyncio
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import aiokafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

Partition = tuple[str, int]
Partitions = frozenset[Partition]

CALL_TIMEOUT_S = 120.0
POLL_MS = 50
SETTLE_SEC = 10.0
# Quick to notice a rebalance, slow to be removed: only a member that a test stops on purpose leaves its group.
COMMON_SETTINGS: Mapping[str, Any] = {
    "session_timeout_ms": 30_000,
    "max_poll_interval_ms": 30_000,
    "heartbeat_interval_ms": 100,
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": 100,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A record that a member has handled, at `at` on the monotonic clock of this machine."""

    topic: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Partitions that a member was assigned or had to give up: `kind` is assigned, revoked or lost."""

    kind: str
    partitions: Partitions


class GroupMember(ABC):
    """A consumer that polls until it is stopped; its records and assignments can be read meanwhile.

    `topics` or a `pattern` are subscribed; `partitions` are assigned instead. Further settings carry the
    names that all clients share, with `_` for librdkafka's `.`.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *topics: str,
        pattern: str | None = None,
        partitions: Iterable[Partition] | None = None,
        assignors: Sequence[str] = ("range",),
        **settings: Any,
    ) -> None:
        self.handled: list[Handled] = []
        self.changes: list[Change] = []
        self.errors: list[KafkaError] = []  # errors that librdkafka reports and recovers from
        self.assignment: Partitions = frozenset()
        self.on_handled: Callable[[Handled], None] | None = None
        self.failure: BaseException | None = None
        self._bootstrap = bootstrap
        self._group = group
        self._topics = list(topics)
        self._pattern = pattern
        self._partitions = None if partitions is None else list(partitions)
        self._assignors = assignors
        self._settings = {**COMMON_SETTINGS, **settings}
        self._calls: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._held = threading.Event()
        self._thread = threading.Thread(target=self._run_and_note_failure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the consumer, as an application that exits does, and wait until it is closed."""
        self._leaving.set()
        if self._thread.ident is not None:
            self._thread.join(CALL_TIMEOUT_S)
            assert not self._thread.is_alive(), f"{self} does not close"

    def hold(self) -> None:
        """Stop polling, like an application that is busy with a record; calls are still served."""
        self._held.set()

    def go_on(self) -> None:
        """Poll again after `hold`."""
        self._held.clear()

    def call(self, action: Callable[[Any], Any]) -> Any:
        """Run `action` with the consumer between two polls (for aiokafka: await its result)."""
        if self.failure is not None:
            raise AssertionError(f"{self} has failed") from self.failure
        future: Future[Any] = Future()
        self._calls.put((action, future))
        return future.result(CALL_TIMEOUT_S)

    def offsets_handled(self, topic: str, partition: int) -> list[int]:
        """Offsets in the order in which this member handled them."""
        return [one.offset for one in self.handled if (one.topic, one.partition) == (topic, partition)]

    def changes_of(self, kind: str) -> list[Partitions]:
        """The non-empty sets of partitions of that kind of change, in their order."""
        return [one.partitions for one in self.changes if one.kind == kind and one.partitions]

    @abstractmethod
    def commit(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        """Commit offsets and wait for the answer; raises the client's error."""

    @abstractmethod
    def committed(self, *partitions: Partition) -> list[int | None]:
        """The committed offset of each partition, None if there is none."""

    @abstractmethod
    def _run(self) -> None:
        """Open, poll until `leave`, close."""

    def _run_and_note_failure(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - it belongs to the test's thread, which asks for it
            self.failure = error
        while not self._calls.empty():
            self._calls.get()[1].set_exception(AssertionError(f"{self} has ended: {self.failure!r}"))

    def _note(self, topic: str, partition: int, offset: int) -> None:
        one = Handled(topic=topic, partition=partition, offset=offset, at=time.monotonic())
        self.handled.append(one)
        if self.on_handled is not None:
            self.on_handled(one)

    def _note_change(self, kind: str, partitions: Iterable[Any]) -> None:
        self.changes.append(Change(kind=kind, partitions=_plain(partitions)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._group!r}, {self.assignment}, failure={self.failure!r})"


class _BlockingMember(GroupMember):
    """A client whose calls block."""

    @abstractmethod
    def _open(self) -> Any:
        """The consumer, subscribed or assigned."""

    @abstractmethod
    def _poll(self, consumer: Any) -> None:
        """Handle the available records."""

    def _run(self) -> None:
        consumer = self._open()
        try:
            while not self._leaving.is_set():
                while not self._calls.empty():
                    action, future = self._calls.get()
                    _answer(future, lambda action=action: action(consumer))  # type: ignore[misc]
                if self._held.is_set():
                    time.sleep(0.01)
                else:
                    self._poll(consumer)
                    self.assignment = _plain(consumer.assignment())
            self._settle(consumer)
        finally:
            consumer.close()
            self.assignment = frozenset()

    def _settle(self, consumer: Any) -> None:
        """Bring the consumer into a state in which it can be closed."""


class LibrdkafkaMember(_BlockingMember):
    """confluent-kafka. A record's offset is stored for the auto commit after the record was handled."""

    _is_joining = False

    def _open(self) -> Consumer:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "partition.assignment.strategy": ",".join(self._assignors),
            "enable.auto.offset.store": False,
            "topic.metadata.refresh.interval.ms": 200,
            "fetch.wait.max.ms": 100,
            "error_cb": self.errors.append,
            **{
                name if name.endswith("_cb") or name == "on_commit" else name.replace("_", "."): value
                for name, value in self._settings.items()
            },
        }
        consumer = Consumer(settings)
        if self._partitions is not None:
            consumer.assign([TopicPartition(*one) for one in self._partitions])
        else:
            self._is_joining = True
            consumer.subscribe(
                [self._pattern] if self._pattern else self._topics,
                on_assign=lambda _, partitions: self._note_rebalance("assigned", partitions),
                on_revoke=lambda _, partitions: self._note_rebalance("revoked", partitions),
                on_lost=lambda _, partitions: self._note_rebalance("lost", partitions),
            )
        return consumer

    def _note_rebalance(self, kind: str, partitions: Iterable[Any]) -> None:
        self._is_joining = kind != "assigned"
        self._note_change(kind, partitions)

    def _settle(self, consumer: Consumer) -> None:
        """Poll until a join that is in progress has ended, if it ends soon.

        librdkafka may wait for itself without end, with Python's lock held, when an assignment arrives while it
        closes (2.16.0: `rd_kafka_assign` from the callback).
        """
        deadline = time.monotonic() + SETTLE_SEC
        while self._is_joining and time.monotonic() < deadline:
            self._poll(consumer)

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL_MS / 1000)
        if message is None:
            return
        error = message.error()
        if error is None:
            self._note(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
            if self._settings.get("enable_auto_commit", True):
                consumer.store_offsets(message)
        else:
            self.errors.append(error)
            if error.fatal():
                raise KafkaException(error)

    def commit(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        rows = [TopicPartition(*one, offset, metadata) for one, offset in offsets.items()]
        for answer in self.call(lambda consumer: consumer.commit(offsets=rows, asynchronous=False)):
            if answer.error is not None:
                raise KafkaException(answer.error)

    def committed(self, *partitions: Partition) -> list[int | None]:
        rows = [TopicPartition(*one) for one in partitions]
        answers = self.call(lambda consumer: consumer.committed(rows, timeout=CALL_TIMEOUT_S))
        return [None if one.offset < 0 else one.offset for one in answers]


class KafkaPythonMember(_BlockingMember):
    """kafka-python."""

    # A member that joins again for a change of topics stays outside permanently when its poll ends before it has
    # joined (3.0.12): it compares the new topics with those of the assignment that it has not taken up yet.
    # On a loaded machine that happened in a poll of a second.
    PATTERN_POLL_MS = 5_000
    ASSIGNORS: ClassVar[Mapping[str, Any]] = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def _open(self) -> Any:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            partition_assignment_strategy=[self.ASSIGNORS[name] for name in self._assignors],
            metadata_max_age_ms=200,
            fetch_max_wait_ms=100,
            retry_backoff_ms=POLL_MS // 2,
            **self._settings,
        )
        if self._partitions is not None:
            consumer.assign([kafka.TopicPartition(*one) for one in self._partitions])
        elif self._pattern:
            consumer.subscribe(pattern=self._pattern, listener=_KafkaPythonListener(self))
        else:
            consumer.subscribe(self._topics, listener=_KafkaPythonListener(self))
            for topic in self._topics:  # else it may join before it knows them, and then joins once more
                consumer.partitions_for_topic(topic)
        return consumer

    def _poll(self, consumer: Any) -> None:
        for records in consumer.poll(timeout_ms=self.PATTERN_POLL_MS if self._pattern else POLL_MS).values():
            for record in records:
                self._note(record.topic, record.partition, record.offset)

    def commit(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        rows = {
            kafka.TopicPartition(*one): kafka.OffsetAndMetadata(offset, metadata, -1)
            for one, offset in offsets.items()
        }
        self.call(lambda consumer: consumer.commit(rows))

    def committed(self, *partitions: Partition) -> list[int | None]:
        rows = [kafka.TopicPartition(*one) for one in partitions]
        answers: list[int | None] = self.call(lambda consumer: [consumer.committed(one) for one in rows])
        return answers


class AiokafkaMember(GroupMember):
    """aiokafka, on an event loop of its own."""

    ASSIGNORS: ClassVar[Mapping[str, Any]] = {"range": AiokafkaRange, "roundrobin": AiokafkaRoundRobin}

    def _run(self) -> None:
        asyncio.run(self._run_on_loop())

    async def _run_on_loop(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            partition_assignment_strategy=[self.ASSIGNORS[name] for name in self._assignors],
            metadata_max_age_ms=200,
            fetch_max_wait_ms=100,
            **self._settings,
        )
        if self._partitions is not None:
            consumer.assign([aiokafka.TopicPartition(*one) for one in self._partitions])
        else:
            consumer.subscribe(self._topics, pattern=self._pattern, listener=_AiokafkaListener(self))
        try:
            await consumer.start()
            while not self._leaving.is_set():
                await self._serve_calls(consumer)
                if self._held.is_set():
                    await asyncio.sleep(0.01)
                else:
                    await self._poll(consumer)
                    self.assignment = _plain(consumer.assignment())
        finally:
            await consumer.stop()
            self.assignment = frozenset()

    async def _serve_calls(self, consumer: Any) -> None:
        while not self._calls.empty():
            action, future = self._calls.get()
            try:
                future.set_result(await action(consumer))
            except Exception as error:  # noqa: BLE001 - the caller's
                future.set_exception(error)

    async def _poll(self, consumer: Any) -> None:
        for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
            for record in records:
                self._note(record.topic, record.partition, record.offset)

    def commit(self, offsets: Mapping[Partition, int], metadata: str = "") -> None:
        rows = {aiokafka.TopicPartition(*one): (offset, metadata) for one, offset in offsets.items()}
        self.call(lambda consumer: consumer.commit(rows))

    def committed(self, *partitions: Partition) -> list[int | None]:
        async def ask(consumer: Any) -> list[int | None]:
            return [await consumer.committed(aiokafka.TopicPartition(*one)) for one in partitions]

        answers: list[int | None] = self.call(ask)
        return answers


MEMBERS: Mapping[str, type[GroupMember]] = {
    "librdkafka": LibrdkafkaMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._member._note_change("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._member._note_change("revoked", revoked)


class _AiokafkaListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AiokafkaMember) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._member._note_change("assigned", assigned)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._member._note_change("revoked", revoked)


def _plain(partitions: Iterable[Any]) -> Partitions:
    return frozenset((one.topic, one.partition) for one in partitions)


def _answer(future: Future[Any], action: Callable[[], Any]) -> None:
    try:
        future.set_result(action())
    except Exception as error:  # noqa: BLE001 - the caller's
        future.set_exception(error)
