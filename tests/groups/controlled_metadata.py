"""A metadata store in memory that a test can take away, hold back, and make lose its answers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.committed_offset import decode_committed_offset
from kafscale.formats.group_record import GroupRecord, decode_group_record
from kafscale.formats.pending_offsets import PendingOffsets, decode_pending_offsets
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, KeyValue, Operation, Snapshot, TransactionResult
from tests.support.waiting import PATIENCE_SEC


class Hold:
    """Calls that wait."""

    def __init__(self, method: str, prefix: str) -> None:
        self.method = method
        self.prefix = prefix
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def until_reached(self) -> None:
        """Return once a call waits here."""
        async with asyncio.timeout(PATIENCE_SEC):
            await self.reached.wait()

    def release(self) -> None:
        """Let them go on."""
        self.released.set()


class Metadata(MemoryStore):
    """A metadata store that notes what it did, and can be away, be held back and lose its answers.

    `written`: the operations of each transaction that took effect, without those on shard records. `read`:
    the keys and prefixes that were asked for. `lost_requests`, `lost_answers`: how many of the next
    transactions or their answers are lost in flight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[Operation]] = []
        self.read: list[str] = []
        self.is_away = False
        self.lost_requests = 0
        self.lost_answers = 0
        self._holds: list[Hold] = []

    @contextmanager
    def hold(self, method: str, prefix: str) -> Iterator[Hold]:
        """Hold back the calls that concern a key with this prefix before they do anything."""
        hold = Hold(method, prefix)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            hold.release()

    async def get(self, key: str) -> KeyValue | None:
        await self._called("get", key)
        return await super().get(key)

    async def range(self, prefix: str) -> Snapshot:
        await self._called("range", prefix)
        return await super().range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        # Without operations it is a read of what it compares.
        await self._called("transact", *(one.key for one in operations or compares))
        if self.lost_requests:
            self.lost_requests -= 1
            raise StoreIndeterminateError("lost on the way there")
        result = await super().transact(compares, operations)
        if result.succeeded and operations:
            self.written.append([one for one in operations if not one.key.startswith(keys.GROUP_SHARDS)])
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreIndeterminateError("lost on the way back")
        return result

    async def _called(self, method: str, *called: str) -> None:
        if method != "transact":
            self.read += called
        for hold in tuple(self._holds):
            if hold.method == method and any(key.startswith(hold.prefix) for key in called):
                hold.reached.set()
                await hold.released.wait()
        if self.is_away:
            raise StoreUnavailableError("away")

    # What a test looks at, whatever state the store is in

    async def record(self, group_id: str) -> GroupRecord | None:
        """The group's record, None when there is none."""
        item = await super().get(keys.group(group_id))
        return None if item is None else decode_group_record(item.key, item.value)

    async def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        """The stored values of the group, whatever the topics are now."""
        items = (await super().range(keys.group_offsets(group_id))).items
        return {
            keys.offset_topic_and_partition(item.key): decode_committed_offset(item.key, item.value).offset
            for item in items
        }

    async def pending(self, group_id: str, producer_id: int) -> dict[tuple[str, int], int] | None:
        """The offsets that wait for the end of the producer's transaction, None when there are none."""
        item = await super().get(keys.pending_offsets(group_id, producer_id))
        if item is None:
            return None
        found = decode_pending_offsets(item.key, item.value).offsets
        return {place: offset.committed(item.key).offset for place, offset in found.items()}

    async def pending_of(self, group_id: str) -> dict[int, PendingOffsets]:
        """All that is pending in the group, by producer id."""
        items = (await super().range(keys.group_pending_offsets(group_id))).items
        return {
            keys.group_and_producer(item.key)[1]: decode_pending_offsets(item.key, item.value)
            for item in items
        }

    async def keys_of_transactions(self) -> list[str]:
        """Every key of pending offsets, and of markers of groups."""
        pending, markers = await super().range(keys.PENDING_OFFSETS), await super().range(keys.GROUP_MARKERS)
        return [item.key for item in (*pending.items, *markers.items)]

    async def group_keys(self) -> list[str]:
        """Every key that groups have, but for those of the shards."""
        groups, offsets = await super().range(keys.GROUPS), await super().range(keys.GROUP_OFFSETS)
        return [item.key for item in (*groups.items, *offsets.items)]
