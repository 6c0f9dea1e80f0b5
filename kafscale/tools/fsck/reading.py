"""The reads of a check in its two stores: with retries, and bounded."""

import asyncio
from collections.abc import Sequence

from kafscale.errors import ObjectNotFoundError
from kafscale.formats import object_keys
from kafscale.log.journal.partition_states import PartitionStates, Versioned
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore, Snapshot, read_many
from kafscale.objects.object_store import ObjectInfo, ObjectStore
from kafscale.tasks.bounded import map_bounded
from kafscale.tools.recovery.rebuild import patiently


class Reading:
    """The two stores of one cluster, for reading. Every method raises `StoreError`.

    `concurrency`: calls to the object store at the same time, listings apart.
    """

    def __init__(
        self, metadata: MetadataStore, objects: ObjectStore, namespace: str, concurrency: int
    ) -> None:
        self.metadata = metadata
        self.objects = objects
        self.namespace = namespace
        self.concurrency = concurrency
        self._calls = asyncio.Semaphore(concurrency)
        self._states = PartitionStates(metadata, objects, namespace)

    # --- metadata store

    async def range(self, prefix: str) -> Snapshot:
        """Everything under the prefix."""
        return await patiently(lambda: self.metadata.range(prefix))

    async def read_metadata(self, *wanted: str) -> list[KeyValue | None]:
        """The values of the keys at one moment."""
        found = await patiently(lambda: read_many(self.metadata, wanted))
        return [found.get(key) for key in wanted]

    async def broker_ids(self) -> tuple[int, ...]:
        """The brokers that are registered."""
        items = (await self.range(keys.BROKERS)).items
        return tuple(sorted(int(item.key.removeprefix(keys.BROKERS)) for item in items))

    async def state(self, topic: str, partition: int) -> Versioned | None:
        """The partition's state with everything that is acknowledged, and the revision of its record.

        A broker that is killed leaves a little behind its progress. Raises `CorruptDataError`, `EntryMissingError`,
        too.
        """
        return await self._states.read(topic, partition, beyond_progress=True)

    # --- object store

    async def get(self, key: str) -> bytes:
        """The whole object. Raises `ObjectNotFoundError`."""
        async with self._calls:
            return await patiently(lambda: self.objects.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Some bytes of the object. Raises `ObjectNotFoundError`."""
        async with self._calls:
            return await patiently(lambda: self.objects.get_range(key, start, length))

    async def size_bytes(self, key: str) -> int | None:
        """The object's size, None when there is none."""
        async with self._calls:
            try:
                return await patiently(lambda: self.objects.size_bytes(key))
            except ObjectNotFoundError:
                return None

    async def sizes(self, wanted: Sequence[str]) -> dict[str, int | None]:
        """The sizes of all of them."""
        sizes = await map_bounded(self.size_bytes, wanted, min(self.concurrency, max(1, len(wanted))))
        return dict(zip(wanted, sizes, strict=True))

    async def list_partition(self, topic: str, partition: int) -> list[ObjectInfo]:
        """The partition's segments and indexes."""
        prefix = object_keys.partition_prefix(self.namespace, topic, partition)
        return [info async for info in self.objects.list(prefix) if is_segment_or_index(info.key)]

    async def list_checkpoints(self, topic: str, partition: int) -> list[ObjectInfo]:
        """The partition's checkpoints."""
        prefix = object_keys.checkpoints_partition_prefix(self.namespace, topic, partition)
        return [
            info
            async for info in self.objects.list(prefix)
            if object_keys.parse_checkpoint_key(info.key) is not None
        ]


def is_segment_or_index(key: str) -> bool:
    """True if the key is one that leaders give to segments and indexes."""
    return object_keys.parse_segment_key(key) is not None or object_keys.parse_index_key(key) is not None
