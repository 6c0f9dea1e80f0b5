"""Transactions of the Python clients: librdkafka's, kafka-python's, aiokafka's."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import aiokafka
import kafka
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.support.transactions.client import READ_COMMITTED, Partition, Read, TransactionError
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC, wait_until

T = TypeVar("T")


@contextlib.contextmanager
def _translated(*kinds: type[Exception]) -> Iterator[None]:
    """Raises `TransactionError` for these errors of a client."""
    try:
        yield
    except kinds as error:
        raise TransactionError(type(error).__name__, str(error)) from error


# --- librdkafka


@contextlib.contextmanager
def _librdkafka_errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise TransactionError(error.args[0].name(), str(error)) from error


class LibrdkafkaProducer:
    """A producer of confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # Its own limit of a message's life may not be longer than the transaction.
                "message.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,  # of fences and aborts, which are what tests are about
            }
        )
        with _librdkafka_errors():
            self._producer.init_transactions(PATIENCE_SEC)

    def begin(self) -> None:
        with _librdkafka_errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        failures: list[Any] = []

        def note(problem: Any, _: Any) -> None:
            if problem is not None:
                failures.append(problem)

        with _librdkafka_errors():
            for value in values:
                self._producer.produce(topic, value, partition=partition, on_delivery=note)
            left = self._producer.flush(PATIENCE_SEC)
        assert left == 0, f"{left} records are not acknowledged"
        if failures:
            raise TransactionError(failures[0].name(), str(failures[0]))

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            rows = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
            with _librdkafka_errors():
                self._producer.send_offsets_to_transaction(
                    rows, consumer.consumer_group_metadata(), PATIENCE_SEC
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with _librdkafka_errors():
            self._producer.commit_transaction(PATIENCE_SEC)

    def abort(self) -> None:
        with _librdkafka_errors():
            self._producer.abort_transaction(PATIENCE_SEC)

    def close(self) -> None:
        del self._producer


class Librdkafka:
    """confluent-kafka."""

    name = "librdkafka"
    knows_new_protocol = False

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> LibrdkafkaProducer:
        return LibrdkafkaProducer(bootstrap, transactional_id, timeout_ms)

    def read(self, bootstrap: str, topic: str, last: bytes, isolation: str = READ_COMMITTED) -> list[Read]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        found: list[Read] = []

        def is_read() -> bool:
            message: Any = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, str(message.error())
                found.append(Read(message.offset(), message.value()))
            return bool(found) and found[-1].value == last

        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            wait_until(is_read, f"{last!r} is read")
        finally:
            consumer.close()
        return found


# --- kafka-python


class KafkaPythonProducer:
    """A producer of kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=PATIENCE_MS,
        )
        with _translated(kafka.errors.KafkaError):
            self._producer.init_transactions()

    def begin(self) -> None:
        with _translated(kafka.errors.KafkaError):
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        with _translated(kafka.errors.KafkaError):
            sent = [self._producer.send(topic, value, partition=partition) for value in values]
            for one in sent:
                one.get(PATIENCE_SEC)

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        rows = {
            PythonPartition(*partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        with _translated(kafka.errors.KafkaError):
            self._producer.send_offsets_to_transaction(rows, group)

    def commit(self) -> None:
        with _translated(kafka.errors.KafkaError):
            self._producer.commit_transaction()

    def abort(self) -> None:
        with _translated(kafka.errors.KafkaError):
            self._producer.abort_transaction()

    def close(self) -> None:
        # Without a timeout of its own it waits for a transaction that nobody ends.
        self._producer.close(timeout=0)


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    knows_new_protocol = False

    def producer(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> KafkaPythonProducer:
        return KafkaPythonProducer(bootstrap, transactional_id, timeout_ms)

    def read(self, bootstrap: str, topic: str, last: bytes, isolation: str = READ_COMMITTED) -> list[Read]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
        )
        partition = PythonPartition(topic, 0)
        found: list[Read] = []

        def is_read() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(Read(one.offset, one.value) for one in records)
            return any(one.value == last for one in found)

        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            wait_until(is_read, f"{last!r} is read")
        finally:
            consumer.close()
        return found


# --- aiokafka


class _Loop:
    """An event loop on a thread of its own: the producer works between the calls of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SEC)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SEC)
        self._loop.close()


class AiokafkaProducer:
    """A producer of aiokafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = _Loop()
        self._producer: Any = None

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        with _translated(aiokafka.errors.KafkaError):
            self._producer = self._loop.run(start())

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        async def send() -> None:
            sent = [await self._producer.send(topic, value, partition=partition) for value in values]
            await asyncio.gather(*sent)

        self._do(send())

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        rows = {AioPartition(*partition): offset for partition, offset in offsets.items()}
        self._do(self._producer.send_offsets_to_transaction(rows, group))

    def commit(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(aiokafka.errors.KafkaError):
            self._loop.run(self._producer.stop())
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        with _translated(aiokafka.errors.KafkaError):
            self._loop.run(work)


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"
    knows_new_protocol = False

    def producer(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> AiokafkaProducer:
        return AiokafkaProducer(bootstrap, transactional_id, timeout_ms)

    def read(self, bootstrap: str, topic: str, last: bytes, isolation: str = READ_COMMITTED) -> list[Read]:
        async def read() -> list[Read]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
            )
            partition = AioPartition(topic, 0)
            found: list[Read] = []
            await consumer.start()
            try:
                consumer.assign([partition])
                consumer.seek(partition, 0)
                while not found or found[-1].value != last:
                    record = await asyncio.wait_for(consumer.getone(), PATIENCE_SEC)
                    found.append(Read(record.offset, record.value))
            finally:
                await consumer.stop()
            return found

        return asyncio.run(read())
