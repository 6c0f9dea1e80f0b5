"""Heartbeats of consumer groups and of share groups, before and after the group's machine."""

from collections.abc import Collection
from typing import Final, cast

from kafscale.groups.any_group import AnyEvent, AnyGroup
from kafscale.groups.effects import Heartbeated
from kafscale.groups.group import GROUP_MEMORY_BYTES
from kafscale.groups.modern.events import JOINS
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shards import GroupShards
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

_MEMBER_BYTES: Final = 2048
_NAME_BYTES: Final = 256


class Admission:
    """Room for members, and answers in time."""

    def __init__(self, shards: GroupShards, settings: Settings) -> None:
        self._shards = shards
        self._settings = settings

    def check_memory(
        self, group: AnyGroup, member_id: str, member_epoch: int, names: Collection[str] | None
    ) -> None:
        """Refuse a member, or a subscription, that needs more memory or room in the store than groups may have.

        Raises `KafkaError` GROUP_MAX_SIZE_REACHED, and as `StoredLimits.check_record`.
        """
        growth = sum(_NAME_BYTES + len(name) for name in names or ())
        if member_id not in group.members:
            growth += _MEMBER_BYTES + (0 if group.members else GROUP_MEMORY_BYTES)
        if member_epoch < JOINS or not growth:
            return
        totals = self._shards.totals
        if totals.memory_bytes + growth > self._settings.group_memory_bytes:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "the groups of this broker have all the memory that KAFSCALE_GROUP_MEMORY_BYTES allows",
            )
        self._shards.limits.check_record(totals.stored, self._shards.shard_count, growth)

    async def ask(self, running: RunningGroup, event: AnyEvent, reply_id: int) -> Heartbeated:
        """The group's answer to a heartbeat. Raises `KafkaError` of its error code, or COORDINATOR_NOT_AVAILABLE."""
        try:
            wait_sec = self._settings.offsets_commit_timeout_ms / 1000
            answer = cast(Heartbeated, await running.ask(event, reply_id, wait_sec))
        except TimeoutError as late:
            # What it changed is stored later, or was; the member asks again.
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "the metadata store did not answer in time"
            ) from late
        if answer.error_code is not ErrorCode.NONE:
            raise KafkaError(answer.error_code, answer.message)
        return answer

    def find(self, group_id: str) -> RunningGroup | None:
        """The group, if there is one, of any type. Raises as `GroupShards.shard`, and while it is being deleted."""
        running = self._shards.group(group_id)
        if running is not None and running.group.state is GroupState.DEAD:
            # Its deletion is not written yet: it would take the record of another of the same id with it.
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {quoted(group_id)} is being deleted"
            )
        return running

    def check_new_group(self) -> None:
        """Raises `KafkaError` if there is no room for one more in the store."""
        self._shards.limits.check_new_group(self._shards.totals.stored, self._shards.shard_count)
