"""Jobs that read, process and write in transactions during trouble, and readers of what they commit.

`LibrdkafkaJob` speaks the old protocol, as librdkafka does; `WireJob` the new one (KIP-890), over raw connections.
"""

import random
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka.protocol.consumer import FetchResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.producer import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from tests.support import wire
from tests.support.cluster import AWAY, CALL_TIMEOUT_S, Cluster
from tests.support.cluster_load import IMPATIENT
from tests.support.group_apis import find_coordinator
from tests.support.ledger import Ledger, Place, Record
from tests.support.load import Worker
from tests.support.transaction_checker import Outcome
from tests.support.transaction_history import CommittedReader, OpenTransaction, TransactionHistory
from tests.support.waiting import PATIENCE_SEC

TRANSACTION_TIMEOUT_MS = 8_000
MOST_RECORDS = 5
ABORT_RATE, VANISH_RATE, SLOW_RATE = 0.15, 0.04, 0.03
NOT_YET = {3, 5, 6, 7, 14, 15, 16, 19, 51, 56, 88, 100}
"""Error codes that pass: of leaders, coordinators, stores, transactions that are being ended, pending offsets."""
FENCED = {47, 49, 90}
ABORTABLE = {48, 120}


class FencedError(Exception):
    """Another instance has the transactional id, or the transaction has timed out."""


class AbortError(Exception):
    """The transaction can only be aborted."""


class TransactionalJob(Worker):
    """One transactional id with its group, which processes one partition. Base of both kinds."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        source: Place,
        outputs: list[Place],
        ledger: Ledger,
        history: TransactionHistory,
        seed: int,
    ) -> None:
        super().__init__(name, ledger)
        self.cluster = cluster
        self.source = source
        self.outputs = outputs
        self.history = history
        self.random = random.Random(seed)
        self.committed = 0
        self.instances = 0

    @property
    def place(self) -> Place:
        """The input partition, as this group's."""
        return f"{self.name} of {self.source[0]}", self.source[1]

    def run(self) -> None:
        while not self._stopping.is_set():
            self.instances += 1
            self.instance()

    def instance(self) -> None:
        """One producer, until it vanishes, is fenced, or the job is stopped."""
        raise NotImplementedError

    def value(self, one: OpenTransaction, offset: int) -> bytes:
        """The output for an input, which names its transaction."""
        return b"%s:%d:%d" % (one.name.encode(), self.instances, offset)

    def dawdle(self) -> None:
        """Sometimes a transaction takes too long."""
        slow = self.random.random() < SLOW_RATE
        self._stopping.wait(1.3 * TRANSACTION_TIMEOUT_MS / 1000 if slow else self.random.random() * 0.05)


class LibrdkafkaJob(TransactionalJob):
    """confluent-kafka's transactional producer and a consumer beside it."""

    _next_offset = -1

    def instance(self) -> None:
        self._next_offset = -1
        client = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in IMPATIENT.items()},
            }
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in IMPATIENT.items()},
            }
        )
        try:
            if not self._retried(lambda: client.init_transactions(20)):
                return
            while not self._stopping.is_set() and self._transaction(client, consumer):
                pass
        finally:
            consumer.close()

    def _retried(self, call: Callable[[], object]) -> bool:
        """False if the job is stopped, or the producer is over. Raises `AbortError`."""
        while not self._stopping.is_set():
            try:
                call()
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if error.fatal():
                    return False
                if error.txn_requires_abort():
                    raise AbortError from problem
                if not error.retriable():
                    self.ledger.fail(f"{self.name}: {error}")
                    return False
            else:
                return True
            self._stopping.wait(0.1)
        return False

    def _transaction(self, client: Producer, consumer: Consumer) -> bool:
        """One transaction; False if this instance is over."""
        inputs = self._inputs(consumer)
        if not inputs:
            return True
        one = self.history.begin(self.name)
        try:
            if not self._retried(client.begin_transaction):
                return False
            if not self._fill(one, client, consumer, inputs):
                return False
            if self.random.random() < VANISH_RATE:
                return False
            if self.random.random() < ABORT_RATE:
                return self._abort(one, client)
            return self._commit(one, client)
        except AbortError:
            return self._abort(one, client)

    def _inputs(self, consumer: Consumer) -> list[tuple[int, bytes]]:
        """The next records from the group's position on."""
        place = TopicPartition(*self.source)
        try:
            (found,) = consumer.committed([place], timeout=5)
        except KafkaException:
            self._stopping.wait(0.2)
            return []
        if max(0, found.offset) != self._next_offset:
            consumer.assign([TopicPartition(*self.source, max(0, found.offset))])
        wanted, until = self.random.randint(1, MOST_RECORDS), time.monotonic() + 5
        inputs: list[tuple[int, bytes]] = []
        while len(inputs) < wanted and time.monotonic() < until and not self._stopping.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                inputs.append((offset, value or b""))
                self._next_offset = offset + 1
        return inputs

    def _fill(
        self, one: OpenTransaction, client: Producer, consumer: Consumer, inputs: list[tuple[int, bytes]]
    ) -> bool:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                value, offset = message.value(), message.offset()
                assert value is not None
                one.acknowledge(value, offset if offset is not None and offset >= 0 else None)

        for offset, value in inputs:
            one.reads.append((self.place, (offset, value)))
            output = self.random.choice(self.outputs)
            one.write(output, self.value(one, offset))
            client.produce(output[0], self.value(one, offset), partition=output[1], on_delivery=report)
        self.dawdle()
        position = [TopicPartition(*self.source, inputs[-1][0] + 1)]
        group = consumer.consumer_group_metadata()
        return self._retried(lambda: client.send_offsets_to_transaction(position, group, 20))

    def _abort(self, one: OpenTransaction, client: Producer) -> bool:
        self.history.end(one, commit=False)
        try:
            return self._retried(lambda: client.abort_transaction(20))
        except AbortError:
            return False

    def _commit(self, one: OpenTransaction, client: Producer) -> bool:
        if client.flush(20):
            raise AbortError
        self.history.end(one, commit=True)
        try:
            is_done = self._retried(lambda: client.commit_transaction(20))
        except AbortError:
            # It was refused before anything was decided.
            one.outcome = Outcome.UNKNOWN
            return self._retried(lambda: client.abort_transaction(20))
        if is_done:
            one.outcome = Outcome.COMMITTED
            self.committed += 1
        return is_done


class WireJob(TransactionalJob):
    """TV2 by hand: leaders and the group's coordinator add themselves, and each end gives another epoch."""

    _producer = (-1, -1)

    def instance(self) -> None:
        self._connections: dict[int, wire.Wire] = {}
        self._sequences: dict[Place, int] = {}
        try:
            request = InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = self._call(
                self._coordinator, request, InitProducerIdResponse, 4, lambda one: one.error_code
            )
            self._become((answer.producer_id, answer.producer_epoch))
            while not self._stopping.is_set() and self._transaction():
                pass
        except (FencedError, AbortError):
            return
        finally:
            for connection in self._connections.values():
                connection.close()

    def _become(self, producer: tuple[int, int]) -> None:
        if producer != self._producer:
            self._producer, self._sequences = producer, {}

    # --- requests

    def _coordinator(self) -> int:
        with wire.connect(self.cluster.any_live(), CALL_TIMEOUT_S) as connection:
            found = find_coordinator(connection, [self.name], key_type=1)[self.name]
        return int(found.node_id) if found.error_code == 0 else -1

    def _leader(self, place: Place) -> int:
        return self.cluster.leaders(place[0]).get(place[1], -1)

    def _call(
        self,
        find: Callable[[], int],
        request: Any,
        response: Any,
        version: int,
        code_of: Callable[[Any], int],
        *,
        is_end: bool = False,
    ) -> Any:
        """The answer, once there is one. Raises `FencedError`, `AbortError`; `doubt` says if it was sent before."""
        self.doubt = False
        until = time.monotonic() + (PATIENCE_SEC if is_end else 15)
        broker_id = -1
        while not self._stopping.is_set() or is_end:
            try:
                broker_id = find() if broker_id < 0 else broker_id
                if broker_id in self.cluster.brokers:
                    answer = self._connection(broker_id).call(request, response, version)
                    code = code_of(answer)
                    if code in (0, 46):
                        return answer
                    if code in FENCED:
                        raise FencedError
                    if code in ABORTABLE:
                        raise AbortError
                    if code not in NOT_YET:
                        self.ledger.fail(f"{self.name}: {type(request).__name__}: error code {code}")
                        raise AbortError
                    self.doubt |= code == 7
                    if code == 51:
                        time.sleep(0.02)
                        continue
            except AWAY:
                self.doubt = True
                if (connection := self._connections.pop(broker_id, None)) is not None:
                    connection.close()
            broker_id = -1
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        raise AbortError

    def _connection(self, broker_id: int) -> wire.Wire:
        if broker_id not in self._connections:
            broker = self.cluster.brokers[broker_id]
            self._connections[broker_id] = wire.Wire(broker.host, broker.port, CALL_TIMEOUT_S)
        return self._connections[broker_id]

    # --- the transaction

    def _transaction(self) -> bool:
        inputs = self._inputs()
        if not inputs:
            self._stopping.wait(0.2)
            return True
        one = self.history.begin(self.name)
        try:
            for offset, value in inputs:
                one.reads.append((self.place, (offset, value)))
                self._produce(one, self.random.choice(self.outputs), self.value(one, offset))
            self._send_offsets(inputs[-1][0] + 1)
            self.dawdle()
        except AbortError:
            self._end(one, commit=False)
            return True
        if self.random.random() < VANISH_RATE:
            return False
        self._end(one, commit=self.random.random() >= ABORT_RATE)
        return True

    def _inputs(self) -> list[Record]:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(
            name=self.source[0], partition_indexes=[self.source[1]]
        )
        request = OffsetFetchRequest(group_id=self.name, topics=[topic], require_stable=True)
        answer = self._call(
            self._coordinator,
            request,
            OffsetFetchResponse,
            7,
            lambda one: one.error_code or one.topics[0].partitions[0].error_code,
        )
        position = max(0, answer.topics[0].partitions[0].committed_offset)
        topic_name, index = self.source
        fetch = wire.fetch_request(topic_name, {index: position})
        fetched = self._call(
            lambda: self._leader(self.source),
            fetch,
            FetchResponse,
            wire.FETCH_VERSION,
            lambda one: one.responses[0].partitions[0].error_code,
        )
        records = wire.records_in(fetched.responses[0].partitions[0].records)
        due = [(offset, value) for offset, value in records if offset >= position]
        return due[: self.random.randint(1, MOST_RECORDS)]

    def _produce(self, one: OpenTransaction, place: Place, value: bytes) -> None:
        sequence = self._sequences.get(place, 0)
        batch = wire.batch(
            [value],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            sequence=sequence,
            is_transactional=True,
        )
        one.write(place, value)
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=3_000,
            topic_data=[
                data(name=place[0], partition_data=[data.PartitionProduceData(index=place[1], records=batch)])
            ],
        )
        answer = self._call(
            lambda: self._leader(place),
            request,
            ProduceResponse,
            12,
            lambda reply: reply.responses[0].partition_responses[0].error_code,
        )
        self._sequences[place] = sequence + 1
        partition = answer.responses[0].partition_responses[0]
        is_known = partition.error_code == 0 and partition.base_offset >= 0
        one.acknowledge(value, partition.base_offset if is_known else None)

    def _send_offsets(self, offset: int) -> None:
        of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = of_topic.TxnOffsetCommitRequestPartition(
            partition_index=self.source[1],
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[of_topic(name=self.source[0], partitions=[partition])],
        )
        self._call(
            self._coordinator,
            request,
            TxnOffsetCommitResponse,
            5,
            lambda one: one.topics[0].partitions[0].error_code,
        )

    def _end(self, one: OpenTransaction, *, commit: bool) -> None:
        self.history.end(one, commit=commit)
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            committed=commit,
        )
        try:
            answer = self._call(
                self._coordinator, request, EndTxnResponse, 5, lambda one: one.error_code, is_end=True
            )
        except (FencedError, AbortError):
            if commit and not self.doubt:
                one.outcome = Outcome.ABORTED
            raise
        if commit:
            one.outcome = Outcome.COMMITTED
            self.committed += 1
        self._become((answer.producer_id, answer.producer_epoch))


class CommittedFollower(Worker):
    """librdkafka that reads all partitions `read_committed`."""

    def __init__(
        self, name: str, cluster: Cluster, places: list[Place], ledger: Ledger, history: TransactionHistory
    ) -> None:
        super().__init__(name, ledger)
        self._cluster = cluster
        self._readers: dict[Place, CommittedReader] = {place: history.reader(name, place) for place in places}

    def run(self) -> None:
        consumer = committed_consumer(self._cluster)
        try:
            consumer.assign([TopicPartition(*place, 0) for place in self._readers])
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    assert topic is not None and partition is not None and offset is not None
                    self._readers[topic, partition].see(offset, message.value() or b"")
        finally:
            consumer.close()


def committed_consumer(cluster: Cluster) -> Consumer:
    """A consumer for assigned partitions that sees only what is committed."""
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 200,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in IMPATIENT.items()},
        }
    )


def read_committed(
    cluster: Cluster, places: list[Place], timeout_s: float = PATIENCE_SEC
) -> dict[Place, list[Record]]:
    """Everything that is committed, to the last stable offset of each partition."""
    consumer = committed_consumer(cluster)
    found: dict[Place, list[Record]] = {place: [] for place in places}
    ended: set[Place] = set()
    until = time.monotonic() + timeout_s
    try:
        consumer.assign([TopicPartition(*place, 0) for place in places])
        while len(ended) < len(places):
            assert time.monotonic() < until, f"only {sorted(ended)} were read to their ends"
            message = consumer.poll(0.5)
            if message is None:
                continue
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(place)
                continue
            offset = message.offset()
            assert offset is not None
            found[place].append((offset, message.value()))
    finally:
        consumer.close()
    return found
