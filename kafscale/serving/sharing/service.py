"""The share sessions of a broker, and the share partitions that they read."""

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.context import ClientSoftware
from kafscale.serving.sharing.shared_log import PartitionLogOfLeader
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.sessions import OPENS, SessionKey, SharedPartition, ShareSession, ShareSessions
from kafscale.share.share_partitions import SharePartitions, SharePolicy
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

NOT_HOSTED: Final = "This server does not host this topic-partition."


class ShareService:
    """Of one broker. `policy`: what the configs of a group say."""

    def __init__(
        self,
        view: ClusterView,
        logs: LogManager,
        partitions: SharePartitions,
        policy: Callable[[str], SharePolicy],
        session_limit: int,
    ) -> None:
        self.sessions = ShareSessions(session_limit)
        self.policy = policy
        self._view = view
        self._logs = logs
        self._partitions = partitions
        self._tasks = TaskOwner()

    async def close(self) -> None:
        """End what is being released, and give the partitions up."""
        await self._tasks.close()
        await self._partitions.close()

    # --- sessions

    def session(self, key: SessionKey, epoch: int, connection: ClientSoftware) -> ShareSession:
        """The session of a fetch. Raises `KafkaError` as `ShareSessions` does."""
        if epoch == OPENS:
            connection.when_ended = lambda: self.connection_ended(connection)
            return self.sessions.open(key, connection)
        return self.sessions.go_on(key, epoch)

    async def close_session(self, session: ShareSession) -> None:
        """End it; returns once what the member has had can be acquired by others."""
        self.sessions.remove(session.key)
        await self._release(session.key, session.partitions)

    def connection_ended(self, connection: object) -> None:
        """End the sessions that the connection has opened, soon: its client is gone, or has another connection."""
        for session in self.sessions.remove_connection(connection):
            self._tasks.spawn(self._release(session.key, session.partitions), "release a member's records")

    async def _release(self, key: SessionKey, places: Iterable[SharedPartition]) -> None:
        async def release(place: SharedPartition) -> None:
            led = self._partitions.find(SharePartitionId(key.group_id, *place))
            if led is None:
                return
            try:
                await led.release(key.member_id)
            except KafkaError as problem:
                # Its next leader knows of no acquisition, or the group's offsets were altered.
                logger.debug("nothing to release", extra={"problem": str(problem)})

        await for_each(list(places), release)

    # --- partitions

    def led(self, place: SharedPartition) -> Partition:
        """The partition if this broker leads it.

        Raises `KafkaError`: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        topic_id, index = place
        topic = self._view.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if not 0 <= index < topic.partition_count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        partition = self._logs.partition(topic.name, index)
        if partition is None or partition.topic_id not in (topic_id, uuid.UUID(int=0)):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        return partition

    def open_now(
        self, group_id: str, place: SharedPartition, partition: Partition
    ) -> LedSharePartition | None:
        """The share partition if it is open, without a wait."""
        return self._partitions.find(SharePartitionId(group_id, *place), PartitionLogOfLeader(partition))

    async def shared(self, group_id: str, place: SharedPartition, partition: Partition) -> LedSharePartition:
        """The share partition. Raises `KafkaError` as `SharePartitions.get` does."""
        return await self._partitions.get(SharePartitionId(group_id, *place), PartitionLogOfLeader(partition))

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """The topic's name, None if this broker knows no such topic."""
        topic = self._view.topic_by_id(topic_id)
        return None if topic is None else topic.name
