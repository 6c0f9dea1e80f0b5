"""A member with aiokafka: some records per call."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownMemberIdError

from tests.support.group_journal import NO_GENERATION
from tests.support.group_member_work import POLL_SECONDS, RECORDS_PER_COMMIT, MemberOptions, Work

RECONNECT_SECONDS = 0.1
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class AiokafkaMember(ConsumerRebalanceListener):  # type: ignore[misc]
    """Its rebalances run beside the loop that reads, and wait until that has committed."""

    def __init__(self, options: MemberOptions, work: Work) -> None:
        self._topic = options.topic
        self._work = work
        self._busy = asyncio.Lock()
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            client_id=options.name,
            partition_assignment_strategy=[ASSIGNORS[options.assignor]],
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )

    async def start(self) -> bool:
        """False if no broker is available: the client gives up then."""
        self._consumer.subscribe([self._topic], listener=self)
        try:
            await self._consumer.start()
        except KafkaConnectionError:
            await self._consumer.stop()
            return False
        self._never_commit_without_membership()
        return True

    async def run(self) -> None:
        consumer, work = self._consumer, self._work
        while not work.stopping.is_set():
            found = await consumer.getmany(
                timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_PER_COMMIT
            )
            async with self._busy:
                for records in found.values():
                    for record in records:
                        work.process(record.partition, record.offset, record.value)
                if work.commit_is_due():
                    await self._commit()
        async with self._busy:
            await self._commit()
        await consumer.stop()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """The client's callback: it owns these partitions from now on."""
        coordinator = self._consumer._coordinator  # the only place that shows the generation
        indexes = [one.partition for one in assigned]
        self._work.assigned(indexes, coordinator.generation, coordinator.member_id)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """The client's callback: these are revoked."""
        async with self._busy:
            await self._commit()
            self._work.revoked(one.partition for one in revoked)

    def _never_commit_without_membership(self) -> None:
        """An aiokafka consumer that has lost its membership commits like a client outside the group.

        A group whose members have all left must accept that, and its offsets would go backwards. kafka-python
        and the Java client refuse such commits by themselves.
        """
        coordinator = self._consumer._coordinator
        commit = coordinator._do_commit_offsets

        async def commit_as_member(assignment: Any, offsets: Any) -> None:
            if coordinator.generation == NO_GENERATION:
                raise UnknownMemberIdError("no member any more")
            await commit(assignment, offsets)

        coordinator._do_commit_offsets = commit_as_member

    async def _commit(self) -> None:
        offsets = self._work.begin_commit()
        if not offsets:
            return
        wanted = {
            TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "")
            for partition, offset in offsets.items()
        }
        try:
            await self._consumer.commit(wanted)
        except KafkaError as error:
            self._work.end_commit(offsets, error)
            return
        self._work.end_commit(offsets)


async def run_aiokafka(options: MemberOptions, work: Work) -> None:
    """The client must be created within the event loop that it uses."""
    while not work.stopping.is_set():
        member = AiokafkaMember(options, work)
        if await member.start():
            await member.run()
            return
        await asyncio.sleep(RECONNECT_SECONDS)
