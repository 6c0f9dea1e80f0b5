"""Producers of several kinds that send to every partition of a topic in turn, and record the times of answers."""

import asyncio
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import aiokafka
import kafka
from confluent_kafka import KafkaError, Message

from tests.support import librdkafka
from tests.support.waiting import PATIENCE_SEC

PAUSE_S = 0.1  # after a record to each partition: each is a segment, and an upload
END_TIMEOUT_S = PATIENCE_SEC


class Flow(ABC):
    """Sends from `with` to `stop` (or the end of the block) on a thread. Settings are the client's, with `_`.

    Record n of partition p has the value `p/n`. `counts`: what was sent to each partition; `errors`: what the
    client gave up; `answered`: for each partition the times (monotonic) of its acknowledgements.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: Any) -> None:
        self.topic = topic
        self.counts = [0] * partitions
        self.errors: list[str] = []
        self.answered: list[list[float]] = [[] for _ in range(partitions)]
        self._bootstrap = bootstrap
        self._settings = settings
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run_and_note_failure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop sending; returns when every request is answered."""
        self._ending.set()
        self._thread.join(END_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self} has unanswered records after {END_TIMEOUT_S} s"

    def acknowledged(self) -> int:
        """The number of answered records. Raises AssertionError if the client has failed to deliver one."""
        assert not self.errors, f"{self}: {self.errors[:3]}"
        return sum(map(len, self.answered))

    def silences(self, since: float, until: float) -> list[float]:
        """For each partition the longest time in that span without an acknowledgement, in seconds."""
        spans = [[since, *(at for at in times if since < at < until), until] for times in self.answered]
        return [max(late - early for early, late in itertools.pairwise(span)) for span in spans]

    def values(self, partition: int) -> list[bytes]:
        """The values sent to the partition, in that order."""
        return [b"%d/%d" % (partition, number) for number in range(self.counts[partition])]

    def _next(self, partition: int) -> bytes:
        value = b"%d/%d" % (partition, self.counts[partition])
        self.counts[partition] += 1
        return value

    def _done(self, partition: int, error: object = None) -> None:
        if error is None:
            self.answered[partition].append(time.monotonic())
        else:
            self.errors.append(f"{self.topic}-{partition}: {error!r}")

    @abstractmethod
    def _run(self) -> None:
        """Send until `_ending`, then wait for every answer and close."""

    def _run_and_note_failure(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  (a thread's exception would be lost)
            self.errors.append(repr(error))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic})"


class LibrdkafkaFlow(Flow):
    """confluent-kafka."""

    def _run(self) -> None:
        client = librdkafka.producer(self, **{"log_level": 2, **self._settings})
        while not self._ending.wait(PAUSE_S):
            for partition in range(len(self.counts)):
                client.produce(
                    self.topic, self._next(partition), partition=partition, on_delivery=self._delivered
                )
            client.poll(0)
        assert client.flush(END_TIMEOUT_S) == 0

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._done(int(message.partition() or 0), error)


class KafkaPythonFlow(Flow):
    """kafka-python."""

    def _run(self) -> None:
        client = kafka.KafkaProducer(bootstrap_servers=self._bootstrap, **self._settings)
        try:
            while not self._ending.wait(PAUSE_S):
                for partition in range(len(self.counts)):
                    future = client.send(self.topic, self._next(partition), partition=partition)
                    future.add_callback(lambda _, partition=partition: self._done(partition))
                    future.add_errback(lambda error, partition=partition: self._done(partition, error))
            client.flush(END_TIMEOUT_S)
        finally:
            client.close()


class AiokafkaFlow(Flow):
    """aiokafka, on an event loop of its own."""

    def _run(self) -> None:
        asyncio.run(self._run_on_loop())

    async def _run_on_loop(self) -> None:
        client = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, **self._settings)
        await client.start()
        try:
            while not self._ending.is_set():
                await asyncio.sleep(PAUSE_S)
                for partition in range(len(self.counts)):
                    future = await client.send(self.topic, self._next(partition), partition=partition)
                    future.add_done_callback(
                        lambda one, partition=partition: self._done(partition, one.exception())
                    )
            await client.flush()
        finally:
            await client.stop()


FLOWS: Mapping[str, type[Flow]] = {
    "librdkafka": LibrdkafkaFlow,
    "kafka-python": KafkaPythonFlow,
    "aiokafka": AiokafkaFlow,
}
