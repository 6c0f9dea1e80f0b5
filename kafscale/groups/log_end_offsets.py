"""The log end offsets that consumer lag is computed from: local ones, and others read from the store."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import decode_partition_record
from kafscale.groups.lag import LogEndOffset
from kafscale.groups.offsets import TopicPartition
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, read_many
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# One broker coordinates a group, and all brokers lead its partitions: most lag is of partitions led elsewhere.
REFRESH_SEC = 30.0


class LogEndOffsets:
    """Log end offsets of partitions led anywhere.

    Those led elsewhere are of their records, which leaders bring up to date every `KAFSCALE_SEAL_INTERVAL_MS`, and up
    to `REFRESH_SEC` older: to read what lies behind records would cost a request for each entry of every broker.
    `local` returns those that this broker knows; `wanted` the partitions whose offsets are read.
    """

    def __init__(
        self,
        store: MetadataStore,
        local: LogEndOffset,
        wanted: Callable[[], Iterable[TopicPartition]],
        refresh_sec: float = REFRESH_SEC,
        failures: Counter[str] | None = None,
    ) -> None:
        self._store = store
        self._local = local
        self._wanted = wanted
        self._refresh_sec = refresh_sec
        self._failures = ItemFailures(BackgroundWork.CONSUMER_LAG, failures)
        self._elsewhere: dict[TopicPartition, int] = {}
        self._tasks = TaskOwner()

    def get(self, topic: str, index: int) -> int | None:
        """The partition's log end offset, None if it is not known (yet). For any thread."""
        local = self._local(topic, index)
        return self._elsewhere.get((topic, index)) if local is None else local

    def start(self) -> None:
        """Start the periodic reads."""
        self._tasks.spawn(self._run(), "log end offsets")

    async def close(self) -> None:
        """Stop the reads."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self.refresh()
            except StoreError as problem:
                logger.info("counting lag from older log end offsets", extra={"problem": str(problem)})
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report("log end offsets", problem)
            await asyncio.sleep(self._refresh_sec)

    async def refresh(self) -> None:
        """Read all that are wanted and not known locally. Raises `StoreError`."""
        wanted = {one for one in self._wanted() if self._local(*one) is None}
        self._elsewhere = await stored_end_offsets(self._store, wanted)


async def stored_end_offsets(
    store: MetadataStore, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The log end offsets in the records of these partitions; those without are left out. Raises `StoreError`."""
    wanted = sorted(set(partitions))
    found: dict[TopicPartition, int] = {}
    for start in range(0, len(wanted), store.max_operations):
        part = wanted[start : start + store.max_operations]
        for key, item in (await read_many(store, [keys.partition(*one) for one in part])).items():
            try:
                record = decode_partition_record(key, item.value)
            except CorruptDataError as problem:
                logger.error("a partition's record cannot be read", extra={"problem": str(problem)})
                continue
            found[keys.topic_and_partition(key)] = record.log_end_offset
    return found
