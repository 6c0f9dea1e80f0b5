"""The starts of all share groups, as the metadata store last showed them: every broker watches them.

Starts change rarely: when a topic is assigned for the first time, and when an administrator alters or deletes them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from kafscale.cluster.listeners import Listeners
from kafscale.cluster.unreadable_records import UnreadableRecords
from kafscale.cluster.watched_records import Watched
from kafscale.errors import StoreError
from kafscale.formats.share_start_record import ShareStartRecord, decode_share_start
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import Changes, Delete, KeyValue, MetadataStore, Snapshot
from kafscale.ops.item_failures import ItemFailures
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC: Final = 0.5
_CHANGES_AT_ONCE: Final = 500

StartListener = Callable[[SharePartitionId], None]
"""Called after the start of a partition was set, altered or deleted."""

_NO_STARTS: Final[Mapping[SharePartitionId, Watched[ShareStartRecord]]] = {}


class ShareStarts:
    """A view that may lag: what must not be wrong is read from the store, or compared when it is written.

    A start that cannot be read is reported, and is as if it were not there: its leader stops to serve it.
    """

    def __init__(
        self, store: MetadataStore, failures: ItemFailures, retry_delay_sec: float = _RETRY_DELAY_SEC
    ) -> None:
        self._store = store
        self._retry_delay_sec = retry_delay_sec
        self._by_group: dict[str, dict[SharePartitionId, Watched[ShareStartRecord]]] = {}
        self._partitions: dict[str, SharePartitionId] = {}
        self._unreadable = UnreadableRecords()
        self._listeners: Listeners[StartListener] = Listeners(failures)
        self._shown = asyncio.Event()
        self._tasks = TaskOwner()

    def start(self) -> None:
        """Begin the watch."""
        self._tasks.spawn(self._run(), "starts of share groups")

    async def close(self) -> None:
        """End the watch."""
        await self._tasks.close()

    async def shown(self) -> None:
        """Return once the store has shown all starts for the first time; before that nothing is there."""
        await self._shown.wait()

    def get(self, partition: SharePartitionId) -> Watched[ShareStartRecord] | None:
        """The start, and the revision at which it was set."""
        return self._by_group.get(partition.group_id, _NO_STARTS).get(partition)

    def of_group(self, group_id: str) -> Mapping[SharePartitionId, Watched[ShareStartRecord]]:
        """All starts of the group."""
        return self._by_group.get(group_id, _NO_STARTS)

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def subscribe(self, listener: StartListener) -> Callable[[], None]:
        """Call `listener` at each change from now on. The returned function ends that."""
        return self._listeners.add(listener)

    def unreadable(self) -> int:
        """How many starts cannot be read. For any thread."""
        return self._unreadable.count(keys.SHARE_STARTS)

    def apply(self, event: Snapshot | Changes) -> None:
        """Take in what the store shows. Listeners are called for differences only, whichever way they are shown."""
        for _ in self._steps(event):
            pass

    def _steps(self, event: Snapshot | Changes) -> Iterator[None]:
        """Take it in, with a stop after every some, so that the event loop can turn."""
        if isinstance(event, Changes):
            changes: Sequence[KeyValue | Delete] = event.puts_and_deletes
        else:
            present = {item.key for item in event.items}
            self._unreadable.retain(keys.SHARE_STARTS, present)
            gone = [Delete(key) for key in self._partitions if key not in present]
            changes = [*gone, *(item for item in event.items if not self._is_known(item))]
        for number, change in enumerate(changes, 1):
            self._apply(change)
            if number % _CHANGES_AT_ONCE == 0:
                yield
        if isinstance(event, Snapshot):
            self._shown.set()

    def _is_known(self, item: KeyValue) -> bool:
        partition = self._partitions.get(item.key)
        known = None if partition is None else self.get(partition)
        return known is not None and known.revision == item.mod_revision

    def _apply(self, change: KeyValue | Delete) -> None:
        try:
            partition = keys.share_partition(change.key)
        except ValueError as problem:
            if isinstance(change, KeyValue):
                self._unreadable.add(change, problem)
            else:
                self._unreadable.remove(change.key)
            return
        before = self.get(partition)
        record = self._unreadable.read(change, decode_share_start)
        if record is None or isinstance(change, Delete):
            self._remove(partition)
            self._partitions.pop(change.key, None)
        else:
            self._partitions[change.key] = partition
            starts = self._by_group.setdefault(partition.group_id, {})
            starts[partition] = Watched(record, change.mod_revision)
        # By the revision, too: one that was deleted and set again may look the same, and is another.
        if self.get(partition) != before:
            self._listeners.notify(partition)

    def _remove(self, partition: SharePartitionId) -> None:
        starts = self._by_group.get(partition.group_id)
        if starts is not None and starts.pop(partition, None) is not None and not starts:
            del self._by_group[partition.group_id]

    async def _run(self) -> None:
        while True:
            try:
                async with aclosing(self._store.watch(keys.SHARE_STARTS)) as events:
                    async for event in events:
                        for _ in self._steps(event):
                            await asyncio.sleep(0)
            except StoreError as problem:
                logger.warning(
                    "watch of the starts of share groups broke, beginning it again",
                    extra={"problem": str(problem)},
                )
            await asyncio.sleep(self._retry_delay_sec)
