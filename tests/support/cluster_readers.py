"""Consumers that read from a cluster all the time, and record what they see, record by record."""

from typing import Any

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, Message, TopicPartition

from tests.support import wire
from tests.support.cluster import AWAY, Cluster
from tests.support.cluster_load import ANSWER_TIMEOUT_S, IMPATIENT
from tests.support.history import History, ReaderJournal
from tests.support.ledger import Place
from tests.support.load import RECONNECT_SECONDS, Worker

POLL_S = 0.05
POLL_RECORDS = 500
COMMIT_EVERY = 200  # records
UNUSED_GROUP = "unused"
"""librdkafka wants one, and looks for its coordinator, also where partitions are assigned by hand."""
# NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT,
# REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, OFFSET_NOT_AVAILABLE: what a broker may say that comes or goes
RETRIABLE_FETCH_CODES = (6, 5, 3, 7, 9, 56, 78)
# librdkafka's reports of brokers and connections that it recovers from by itself.
PASSING_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)
LOG_START = 0
"""Not OFFSET_BEGINNING, for which librdkafka 2.16 asks the leader.

If an answer comes that an assignment has made out of date, librdkafka asks again (`rd_kafka_toppar_handle_Offset`),
and goes back to the start while it is reading.
"""
# What librdkafka says where it would have moved its position, were auto.offset.reset not "error".
TRUNCATED = "Partition log truncation detected"
NOTHING_COMMITTED = "no previously committed offset available"


class Reader(Worker):
    """Base of the readers."""

    def __init__(
        self, name: str, cluster: Cluster, places: list[Place], history: History, group: str | None = None
    ) -> None:
        super().__init__(name, history)
        self.places = places
        self.journal: ReaderJournal = history.reader(name, group)
        self.positions: dict[Place, int] = {}  # librdkafka's: of each assigned partition, what it reads next
        self._cluster = cluster

    def has_seen(self, ends: dict[Place, int]) -> bool:
        """True if it saw the records at these offsets; -1 stands for an empty partition."""
        return all(self.journal.last(place) >= ends[place] for place in self.places)


class OneBrokerReader(Reader):
    """Raw fetches of every partition from one broker, led by any; it waits while that broker is down."""

    def __init__(
        self, name: str, cluster: Cluster, broker_id: int, places: list[Place], history: History
    ) -> None:
        super().__init__(name, cluster, places, history)
        self._broker = cluster.brokers[broker_id]
        self._positions = dict.fromkeys(places, 0)

    def run(self) -> None:
        for place in self.places:
            self.journal.begin(place, 0)
        while not self._stopping.is_set():
            try:
                with wire.connect(self._broker, ANSWER_TIMEOUT_S) as connection:
                    while not self._stopping.is_set():
                        self._fetch(connection)
                        self._stopping.wait(POLL_S)
            except AWAY:
                self._stopping.wait(RECONNECT_SECONDS)

    def _fetch(self, connection: wire.Wire) -> None:
        """One fetch of all partitions of each topic."""
        for topic in sorted({topic for topic, _ in self.places}):
            offsets = {index: self._positions[name, index] for name, index in self.places if name == topic}
            for index, part in wire.fetch(connection, topic, offsets, max_wait_ms=100).items():
                if part.error_code == 0:
                    self._take((topic, index), part)
                elif part.error_code in RETRIABLE_FETCH_CODES:
                    self._stopping.wait(RECONNECT_SECONDS)
                else:
                    at = f"{topic}-{index} offset {offsets[index]}"
                    self.ledger.fail(f"{self.name}: error code {part.error_code} at {at}")
                    self._stopping.set()

    def _take(self, place: Place, part: Any) -> None:
        for offset, value in wire.records_in(part.records):
            if offset >= self._positions[place]:  # batches come whole, from before where it is
                self.journal.see(place, offset, value)
                self._positions[place] = offset + 1


class ClientReader(Reader):
    """librdkafka with partitions assigned by hand, from the start; it is never reset."""

    def __init__(
        self, name: str, cluster: Cluster, places: list[Place], history: History, **config: object
    ) -> None:
        super().__init__(name, cluster, places, history)
        self._config = config

    def run(self) -> None:
        consumer = _consumer(self._cluster, **self._config)
        try:
            for place in self.places:
                self.journal.begin(place, 0)
            self.positions = dict.fromkeys(self.places, 0)
            _assign(self, consumer)
            while not self._stopping.is_set():
                _take(self, consumer, self.journal)
        finally:
            consumer.close()


class GroupReader(Reader):
    """librdkafka as a member of a group; it commits what it has entered, and nothing else."""

    commit_every = COMMIT_EVERY

    def __init__(
        self, name: str, cluster: Cluster, places: list[Place], history: History, group: str, **config: object
    ) -> None:
        super().__init__(name, cluster, places, history, group)
        self._group = group
        self._config = config
        self._uncommitted = 0

    def run(self) -> None:
        config = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, **self._config}
        consumer = _consumer(self._cluster, **{"group.id": self._group, **config})
        try:
            topics = sorted({topic for topic, _ in self.places})
            consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked)
            while not self._stopping.is_set():
                self._uncommitted += _take(self, consumer, self.journal)
                if self._uncommitted >= self.commit_every:
                    self._commit(consumer)
            self._commit(consumer)
        finally:
            consumer.close()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self.journal.begin((one.topic, one.partition))
            self.positions[one.topic, one.partition] = OFFSET_STORED

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        self.positions.clear()

    def _commit(self, consumer: Consumer) -> None:
        """Without waiting: a failed commit makes others see records again, which is allowed."""
        if self._uncommitted:
            consumer.commit(asynchronous=True)
        self._uncommitted = 0


def _consumer(cluster: Cluster, **config: object) -> Consumer:
    impatient = {name.replace("_", "."): value for name, value in IMPATIENT.items()}
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": UNUSED_GROUP,
            "enable.auto.commit": False,
            # Else it goes to where a log seems truncated, and drops what it has fetched and not delivered.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 200,
            "fetch.min.bytes": 2_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 2,
            **impatient,
            **cluster.clients.reader,
            **config,
        }
    )


def _take(reader: Reader, consumer: Consumer, journal: ReaderJournal) -> int:
    """Record the results of some polls; returns the number of records.

    One by one: a batch could hold records from before a rebalance that was told while it was gathered.
    """
    seen = 0
    message = consumer.poll(POLL_S)
    while message is not None:
        error = message.error()
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            journal.see((topic, partition), offset, message.value())
            if (topic, partition) in reader.positions:
                reader.positions[topic, partition] = offset + 1
            seen += 1
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and TRUNCATED in error.str():
            _read_on(reader, consumer, message)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and NOTHING_COMMITTED in error.str():
            _read_on(reader, consumer, message, LOG_START)
        elif error.code() not in PASSING_ERRORS:
            at = f"{message.topic()}-{message.partition()} offset {message.offset()}"
            reader.ledger.fail(f"{reader.name}: {error} at {at}")
        message = consumer.poll(0) if seen < POLL_RECORDS else None
    return seen


def _read_on(reader: Reader, consumer: Consumer, message: Message, start: int | None = None) -> None:
    """Continue after the last record seen; if that is gone, the offset is out of range, or has another record.

    librdkafka 2.16 asks where the epoch of its position ended, and when metadata arrives before the
    answer is there, it holds the answer against a later position (`rd_kafka_toppar_handle_OffsetForLeaderEpoch`).
    """
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    position = reader.positions.get((topic, partition))
    if position is None or (start is not None and position != OFFSET_STORED):
        return  # Of an assignment that has ended.
    if start is not None:
        reader.positions[topic, partition] = start
    _assign(reader, consumer)


def _assign(reader: Reader, consumer: Consumer) -> None:
    """Assign all of its partitions again: one that librdkafka has stopped fetching cannot be sought.

    Of a group with an eager assignor it refuses incremental_assign(), too.
    """
    consumer.assign([TopicPartition(*place, offset) for place, offset in reader.positions.items()])
