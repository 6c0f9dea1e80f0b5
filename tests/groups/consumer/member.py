"""A client of the consumer protocol, as the coordinator sees it (KIP-848)."""

import uuid
from dataclasses import dataclass, field

from kafscale.groups.consumer.requests import ConsumerHeartbeat
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import GROUP, TOPIC, TOPIC_ID, committed


@dataclass(slots=True)
class ConsumerMember:
    """A client of the consumer protocol, which has what it was given and gives up what it is asked to."""

    coordinator: GroupCoordinator
    group_id: str = GROUP
    topics: tuple[str, ...] = (TOPIC,)
    instance_id: str | None = None
    regex: str | None = None
    rebalance_timeout_ms: int = 60_000
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = JOINS
    owned: Assignment = field(default_factory=dict)

    async def heartbeat(self) -> None:
        """The next heartbeat, which says all that there is to say."""
        answer = await self.coordinator.consumer_heartbeat(self._request())
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment

    async def leave(self, epoch: int = LEAVES) -> None:
        """The last heartbeat, or that of a static member that will return."""
        self.epoch, self.owned = epoch, {}
        await self.coordinator.consumer_heartbeat(self._request())

    async def commit(self, offset: int, *topics: tuple[str, uuid.UUID]) -> ErrorCode:
        """Commit in the first partition of these topics, or of the usual one."""
        offsets = {
            (topic, 0): committed(offset, topic_id=topic_id)
            for topic, topic_id in topics or ((TOPIC, TOPIC_ID),)
        }
        return await self.coordinator.commit(
            self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation=self.epoch,
            offsets=offsets,
            knows_member_epochs=True,
        )

    def _request(self) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            server_assignor=None,
            owned=self.owned,
            client_id="client",
            client_host="/127.0.0.1",
            may_describe=lambda topic: True,
        )
