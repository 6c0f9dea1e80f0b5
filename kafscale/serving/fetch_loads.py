"""Loads what a fetch wants and memory does not have: all at the same time, and once more where it was replaced."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from kafscale.errors import CorruptDataError, StoreError, StoreUnavailableError
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.current_references import OutdatedReferenceError, load_named
from kafscale.log.reading.log_reader import Missing
from kafscale.ops.store_health import StoreState
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.context import Broker
from kafscale.serving.partition_fetch import PartitionFetch
from kafscale.serving.store_deadline import store_deadline

logger = logging.getLogger(__name__)

# Segments that one fetch loads at one time.
MAX_LOADS_AT_ONCE = 64
# How often a fetch plans what to read, when what it wants is merged meanwhile.
_PLANS = 3


class FetchLoads:
    """The loads of one fetch. Whoever made it releases what is in `loaded`, whatever becomes of the loads."""

    def __init__(self, broker: Broker) -> None:
        self.loaded: list[CachedSegment] = []
        self._broker = broker
        self._turns = asyncio.Semaphore(MAX_LOADS_AT_ONCE)

    async def load(self, fetch: PartitionFetch, partition: Partition, max_bytes: int) -> None:
        """Load up to `max_bytes` of a partition; what stands in the way of it, the fetch is told."""
        try:
            self._check_store()
            # What the deadline ends is loaded all the same, and at hand when the client asks again.
            async with store_deadline():
                await self._load_what_is_named(fetch, partition, max_bytes)
        except CorruptDataError as problem:
            logger.error("a segment is damaged and cannot be served", extra={"problem": str(problem)})
            fetch.load_error_code = ErrorCode.CORRUPT_MESSAGE
        except StoreError as problem:
            # That the store is away is in the log already, once; consumers ask again and again.
            level = logging.DEBUG if self._is_store_away else logging.WARNING
            logger.log(level, "could not read from the object store", extra={"problem": str(problem)})
            fetch.load_error_code = ErrorCode.KAFKA_STORAGE_ERROR

    async def _load_what_is_named(self, fetch: PartitionFetch, partition: Partition, max_bytes: int) -> None:
        logs, offset = self._broker.logs, fetch.wanted.fetch_offset

        async def load(missing: Missing) -> None:
            async with self._turns:
                self.loaded.append(await load_named(logs, partition, missing.reference, missing.offset))

        for attempts_left in range(_PLANS, 0, -1):
            await logs.load(partition)
            cached, missing = logs.reader.plan(partition, offset, max_bytes)
            # What comes must not drive out what is there already.
            self.loaded.extend(segment.hold() for segment in cached)
            try:
                await gather_all(map(load, missing))
                return
            except OutdatedReferenceError as outdated:
                # A merge or the retention has removed what was to be read: what does the record name now?
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
    """Do everything at the same time; only then raise the first error, if there was one."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if outcome is not None:
            raise outcome
