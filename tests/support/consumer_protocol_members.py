"""Members of the consumer protocol with confluent-kafka (librdkafka), and a journal of who owned what, in order."""

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.waiting import PATIENCE_SEC, wait_until

Partition = tuple[str, int]
Partitions = frozenset[Partition]

POLL_S = 0.05
STALE_MEMBER_EPOCH = 113

_numbers = itertools.count()


@dataclass(slots=True)
class Journal:
    """Assignments and records of several members, in the order in which they happened."""

    changes: list[tuple[str, str, Partitions]] = field(default_factory=list)
    records: dict[Partition, list[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note(self, member: str, kind: str, partitions: Partitions) -> None:
        """`assigned`, `revoked` or `lost`."""
        with self._lock:
            self.changes.append((member, kind, partitions))

    def handle(self, partition: Partition, offset: int) -> None:
        """A record that a member has handled."""
        with self._lock:
            self.records.setdefault(partition, []).append(offset)

    def of(self, member: str, kind: str) -> list[Partitions]:
        """A member's changes of one kind, without empty ones."""
        return [
            partitions
            for name, one, partitions in self.changes
            if (name, one) == (member, kind) and partitions
        ]

    def check_owners(self) -> None:
        """Assert that no partition had two owners at any time."""
        owners: dict[Partition, str] = {}
        for member, kind, partitions in self.changes:
            for one in partitions:
                if kind == "assigned":
                    assert one not in owners, f"{one} is given to {member} while {owners[one]} has it"
                    owners[one] = member
                else:
                    assert owners.pop(one, None) == member, f"{member} gives up {one}, which it has not"

    def wait_handled(self, counts: Mapping[Partition, int]) -> None:
        """Wait for every record; each must have been handled once, and in order."""
        wanted = {one: list(range(count)) for one, count in counts.items() if count}
        total = sum(map(len, wanted.values()))
        wait_until(lambda: sum(map(len, self.records.values())) >= total, f"{total} records are handled")
        assert self.records == wanted


class ConsumerProtocolMember:
    """Polls on a thread of its own, and commits what it handled when partitions are taken from it.

    `topics`: names, or regular expressions that begin with `^`, which the broker resolves. `config`: librdkafka's
    settings, with `_` for `.`.
    """

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], journal: Journal, **config: object
    ) -> None:
        self.name = f"member-{next(_numbers)}"
        self.failure: BaseException | None = None
        self._topics = list(topics)
        self._journal = journal
        self._handled: dict[Partition, int] = {}
        self._owned: Partitions = frozenset()
        self._calls: queue.SimpleQueue[tuple[Callable[[Consumer], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": self.name,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 500,
            **{name.replace("_", "."): value for name, value in config.items()},
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Close the consumer and wait until it is closed. A static member stays in the group."""
        self._leaving.set()
        self._thread.join(PATIENCE_SEC)
        assert not self._thread.is_alive(), f"{self.name} does not close"

    @property
    def owned(self) -> Partitions:
        """The partitions that it has now."""
        if self.failure is not None and not self._leaving.is_set():
            raise AssertionError(f"{self.name} has ended") from self.failure
        return self._owned

    def wait_owned(self, partitions: Iterable[Partition]) -> None:
        """Wait until it has these, and no others."""
        wanted = frozenset(partitions)
        wait_until(lambda: self.owned == wanted, f"{self.name} owns {sorted(wanted)}")

    def call(self, action: Callable[[Consumer], Any]) -> Any:
        """The result of `action` with the consumer, between two polls."""
        future: Future[Any] = Future()
        self._calls.put((action, future))
        return future.result(PATIENCE_SEC)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit these, and wait for the answer; raises the client's error."""
        self.call(lambda consumer: _commit(consumer, offsets))

    def _run(self) -> None:
        consumer = Consumer(self._config)
        try:
            consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._leaving.is_set():
                while not self._calls.empty():
                    action, future = self._calls.get()
                    try:
                        future.set_result(action(consumer))
                    except Exception as error:  # noqa: BLE001 - the caller's
                        future.set_exception(error)
                self._poll(consumer)
            # Before it closes: from then on librdkafka sends no heartbeat, and would never learn a new epoch.
            self._commit_handled(consumer, self._owned)
        except BaseException as error:  # noqa: BLE001 - the test asks for it
            self.failure = error
        finally:
            consumer.close()
            self._owned = frozenset()

    def _poll(self, consumer: Consumer) -> None:
        message = consumer.poll(POLL_S)
        if message is None:
            return
        problem: KafkaError | None = message.error()
        if problem is None:
            partition = (str(message.topic()), int(message.partition() or 0))
            offset = int(message.offset() or 0)
            self._journal.handle(partition, offset)
            self._handled[partition] = offset + 1
        elif problem.fatal() or problem.code() == KafkaError._FATAL:
            raise KafkaException(problem)

    def _on_assign(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._journal.note(self.name, "assigned", _plain(partitions))
        self._owned |= _plain(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        gone = _plain(partitions)
        self._commit_handled(consumer, gone)
        self._journal.note(self.name, "revoked", gone)
        self._owned -= gone

    def _commit_handled(self, consumer: Consumer, partitions: Partitions) -> None:
        offsets = {one: self._handled.pop(one) for one in partitions & self._handled.keys()}
        if offsets:
            _commit(consumer, offsets)

    def _on_lost(self, _: Consumer, partitions: Iterable[TopicPartition]) -> None:
        gone = _plain(partitions)
        for one in gone & self._handled.keys():
            del self._handled[one]
        self._journal.note(self.name, "lost", gone)
        self._owned -= gone


def _commit(consumer: Consumer, offsets: Mapping[Partition, int]) -> None:
    """Commit, again if the member's epoch was over meanwhile: its next heartbeat tells it the new one."""
    rows = [TopicPartition(*one, offset) for one, offset in offsets.items()]

    def is_committed() -> bool:
        try:
            answers = consumer.commit(offsets=rows, asynchronous=False) or []
            problem = next((one.error for one in answers if one.error), None)
        except KafkaException as error:
            problem = error.args[0]
        if problem is not None and problem.code() != STALE_MEMBER_EPOCH:
            raise KafkaException(problem)
        return problem is None

    wait_until(is_committed, "the commit has the member's epoch")


def _plain(partitions: Iterable[TopicPartition]) -> Partitions:
    return frozenset((one.topic, one.partition) for one in partitions)
