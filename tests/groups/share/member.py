"""A client of a share group, as the coordinator sees it (KIP-932)."""

import uuid
from dataclasses import dataclass, field

from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.events import JOINS, LEAVES
from kafscale.groups.share.requests import ShareHeartbeat, ShareHeartbeatAnswer
from tests.groups.coordination import GROUP, TOPIC


@dataclass(slots=True)
class SharingMember:
    """A client of a share group, which reads what it was given."""

    coordinator: GroupCoordinator
    group_id: str = GROUP
    topics: tuple[str, ...] = (TOPIC,)
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = JOINS
    has: Assignment = field(default_factory=dict)

    async def heartbeat(self, *, full: bool = False) -> ShareHeartbeatAnswer:
        """The next heartbeat. `full`: it says what it subscribes to, as after a lost answer."""
        answer = await self.coordinator.share_heartbeat(self._request(full))
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.has = answer.assignment
        return answer

    async def leave(self) -> ShareHeartbeatAnswer:
        """The last heartbeat."""
        self.epoch, self.has = LEAVES, {}
        return await self.coordinator.share_heartbeat(self._request(False))

    def _request(self, full: bool) -> ShareHeartbeat:
        return ShareHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=None,
            subscribed_topic_names=self.topics if full or self.epoch == JOINS else None,
            client_id="client",
            client_host="/127.0.0.1",
        )
