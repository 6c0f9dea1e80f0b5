"""Loads what a fetch wants and memory does not have: concurrently, and again where segments were replaced."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from kafscale.errors import CorruptDataError, StoreError, StoreUnavailableError
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.current_references import OutdatedReferenceError, load_named
from kafscale.log.reading.load_notes import LoadNotes
from kafscale.log.reading.log_reader import Missing
from kafscale.ops.store_health import StoreState
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.context import Broker
from kafscale.serving.partition_fetch import PartitionFetch
from kafscale.serving.store_deadline import store_deadline

logger = logging.getLogger(__name__)

MAX_LOADS_AT_ONCE: Final = 64
"""Segments that one fetch loads concurrently."""

# How often a fetch plans its reads while merges replace what it wants.
_PLANS: Final = 3


class FetchLoads:
    """The loads of one fetch. The caller releases the segments in `loaded`, whatever the outcome of the loads."""

    def __init__(self, broker: Broker) -> None:
        self.loaded: list[CachedSegment] = []
        self._by_partition: dict[int, list[CachedSegment]] = {}
        self._broker = broker
        self._turns = asyncio.Semaphore(MAX_LOADS_AT_ONCE)

    async def load_all(
        self, planned: Sequence[tuple[PartitionFetch, Partition, int]], notes: LoadNotes
    ) -> None:
        """Load up to so many bytes of each partition. A failure becomes the `load_error_code` of its fetch.

        When merges replaced all of it before the caller could read it, it is loaded again: an answer without any
        records below the end offset would be early. The caller reads before it awaits anything.
        """
        for _ in range(_PLANS):
            await gather_all(self._load(*plan, notes) for plan in planned)
            if not all(self._is_replaced(*plan) for plan in planned):
                return

    def _is_replaced(self, fetch: PartitionFetch, partition: Partition, _max_bytes: int) -> bool:
        if fetch.error_code or fetch.load_error_code or partition.references is None:
            return False
        ours = self._by_partition.get(partition.number, ())
        return not self._broker.logs.reader.has_first(
            partition, fetch.wanted.fetch_offset, ours, fetch.stable_end
        )

    async def _load(
        self, fetch: PartitionFetch, partition: Partition, max_bytes: int, notes: LoadNotes
    ) -> None:
        try:
            self._check_store()
            # A load goes on after the deadline, and is in memory when the client asks again.
            async with store_deadline():
                await self._load_what_is_named(fetch, partition, max_bytes, notes)
        except CorruptDataError as problem:
            logger.error("a segment is damaged and cannot be served", extra={"problem": str(problem)})
            fetch.load_error_code = ErrorCode.CORRUPT_MESSAGE
        except StoreError as problem:
            # The log says once that the store is away; consumers ask again and again.
            level = logging.DEBUG if self._is_store_away else logging.WARNING
            logger.log(level, "could not read from the object store", extra={"problem": str(problem)})
            fetch.load_error_code = ErrorCode.KAFKA_STORAGE_ERROR

    async def _load_what_is_named(
        self, fetch: PartitionFetch, partition: Partition, max_bytes: int, notes: LoadNotes
    ) -> None:
        logs, offset = self._broker.logs, fetch.wanted.fetch_offset

        ours = self._by_partition.setdefault(partition.number, [])

        def keep(segment: CachedSegment) -> None:
            ours.append(segment)
            self.loaded.append(segment)

        async def load(missing: Missing) -> None:
            async with self._turns:
                keep(await load_named(logs, partition, missing.reference, missing.offset))

        for attempts_left in range(_PLANS, 0, -1):
            await logs.load(partition)
            cached, missing = logs.reader.plan(partition, offset, max_bytes, fetch.stable_end)
            notes.segments_cached += len(cached)
            notes.segments_missing += len(missing)
            # Held, so that arriving segments do not evict them.
            for segment in cached:
                keep(segment.hold())
            try:
                await gather_all(map(load, missing))
                return
            except OutdatedReferenceError as outdated:
                # A merge or the retention has removed the object: read what the record names now.
                if attempts_left == 1:
                    raise StoreUnavailableError(
                        "segments are replaced faster than they are read"
                    ) from outdated
                fetch.check_offset()
                if fetch.error_code:
                    return

    @property
    def _is_store_away(self) -> bool:
        return self._broker.object_store_health.reads.state is StoreState.UNAVAILABLE

    def _check_store(self) -> None:
        if self._is_store_away:
            raise StoreUnavailableError("the object store does not answer")


async def gather_all(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently; when all have ended, raise the first error, if there is one."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if outcome is not None:
            raise outcome
