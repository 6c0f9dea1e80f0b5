"""A member with confluent-kafka (librdkafka): one record per poll."""

import struct
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.group_journal import NO_GENERATION
from tests.support.group_member_work import CONSUMER_PROTOCOL, POLL_SECONDS, MemberOptions, Work

METADATA_MAGIC = b"CGMDv2:"  # librdkafka's group metadata: this, the generation, names


def generation_of(consumer: Consumer) -> int:
    """The generation of which it is a member, -1 if none."""
    try:
        metadata: Any = consumer.consumer_group_metadata()
    except RuntimeError:  # how the binding says that librdkafka, already closing, has none to give
        return NO_GENERATION
    assert metadata.startswith(METADATA_MAGIC), f"not librdkafka's group metadata: {metadata!r}"
    (generation,) = struct.unpack_from("<i", metadata, len(METADATA_MAGIC))
    return int(generation)


class LibrdkafkaMember:
    """Commits a partition's position before giving the partition up."""

    def __init__(self, options: MemberOptions, work: Work) -> None:
        self._topic = options.topic
        self._work = work
        # In the consumer protocol (KIP-848) the broker decides of these.
        by_protocol: dict[str, Any] = (
            {"group.protocol": "consumer", "group.remote.assignor": options.assignor}
            if options.client == CONSUMER_PROTOCOL
            else {
                "partition.assignment.strategy": options.assignor,
                "session.timeout.ms": options.session_timeout_ms,
                "heartbeat.interval.ms": options.heartbeat_interval_ms,
            }
        )
        self._consumer = Consumer(
            by_protocol
            | {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group,
                "client.id": options.name,
                "max.poll.interval.ms": options.max_poll_interval_ms,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 4,
            }
        )

    def run(self) -> None:
        consumer, work = self._consumer, self._work
        consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        while not work.stopping.is_set():
            message: Any = consumer.poll(POLL_SECONDS)
            if message is not None and message.error() is not None:
                print(f"{time.monotonic():.3f} {message.error()}", file=sys.stderr, flush=True)
            elif message is not None:
                work.process(message.partition(), message.offset(), message.value())
            if work.commit_is_due():
                self._commit()
        self._commit()
        consumer.close()

    def _commit(self) -> None:
        if generation_of(self._consumer) == NO_GENERATION:
            return  # without membership it would commit like a client outside the group
        offsets = self._work.begin_commit()
        if not offsets:
            return
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._work.end_commit(offsets, error)
            return
        self._work.end_commit(offsets, next((one.error for one in answers or [] if one.error), None))

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        indexes = [one.partition for one in partitions]
        self._work.assigned(indexes, generation_of(self._consumer), self._consumer.memberid())

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._work.revoked(one.partition for one in partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._work.revoked((one.partition for one in partitions), lost=True)
