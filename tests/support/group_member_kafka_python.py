"""A member with kafka-python: some records per poll."""

from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.structs import OffsetAndMetadata

from tests.support.group_member_work import POLL_SECONDS, RECORDS_PER_COMMIT, MemberOptions, Work

RECONNECT_SECONDS = 0.1
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class KafkaPythonMember(ConsumerRebalanceListener):  # type: ignore[misc]
    """Its rebalances happen within `poll`."""

    def __init__(self, options: MemberOptions, work: Work) -> None:
        self._topic = options.topic
        self._commit_timeout_ms = options.session_timeout_ms
        self._work = work
        self._consumer = KafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.name,
            partition_assignment_strategy=[ASSIGNORS[options.assignor]],
            session_timeout_ms=options.session_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            fetch_max_wait_ms=100,
            max_poll_records=RECORDS_PER_COMMIT,
        )

    def run(self) -> None:
        consumer, work = self._consumer, self._work
        consumer.subscribe([self._topic], listener=self)
        while not work.stopping.is_set():
            for record in self._poll():
                work.process(record.partition, record.offset, record.value)
            if work.commit_is_due():
                self._commit()
        self._commit()
        consumer.close()

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """The client's callback: it owns these partitions from now on."""
        metadata = self._consumer.group_metadata()
        indexes = [one.partition for one in assigned]
        self._work.assigned(indexes, metadata.generation_id, metadata.member_id)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """The client's callback: these are revoked. Its request thread calls it, which cannot wait for a commit."""
        self._work.revoked((one.partition for one in revoked), keeps_positions=True)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        """The client's callback: these are lost."""
        self._work.revoked((one.partition for one in lost), lost=True)

    def _poll(self) -> list[Any]:
        """Some records. A missing broker is waited for, which this client leaves to its caller."""
        try:
            found = self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        except KafkaConnectionError:
            self._work.stopping.wait(RECONNECT_SECONDS)
            return []
        return [record for records in found.values() for record in records]

    def _commit(self) -> None:
        offsets = self._work.begin_commit()
        if not offsets:
            return
        wanted = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted, timeout_ms=self._commit_timeout_ms)
        except KafkaError as error:
            self._work.end_commit(offsets, error)
            return
        self._work.end_commit(offsets)
