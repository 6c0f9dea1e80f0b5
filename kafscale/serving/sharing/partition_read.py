"""One read of a share fetch: batches from where the share partition says, and what the member acquires of them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.errors import CorruptDataError
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.load_notes import LoadNotes
from kafscale.log.reading.read import Read
from kafscale.memory.pieces import Pieces
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.fetch import FetchPartition
from kafscale.serving.context import Broker
from kafscale.serving.fetch_loads import FetchLoads
from kafscale.serving.partition_fetch import PartitionFetch
from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.log_batches import ReadBatch, bytes_through, read_batches
from kafscale.share.partition.acquiring import Acquired, Wanted

logger = logging.getLogger(__name__)

_NO_EPOCH: Final = -1
_NO_OFFSET: Final = -1

READS_OF_GAPS: Final = 8
"""So often a read without records for the member is followed by the next one, before others have their turn."""


@dataclass(slots=True)
class SharedRead:
    """The records of one partition that a member acquires. The caller releases `read`."""

    acquired: Sequence[Acquired] = ()
    read: Read = field(default_factory=Read)


def partition_fetch(
    partition: Partition, offset: int, max_bytes: int, reads_committed: bool
) -> PartitionFetch:
    """The read as that of a consumer who asks for this offset."""
    wanted = FetchPartition(partition.id.index, _NO_EPOCH, offset, _NO_EPOCH, _NO_OFFSET, max_bytes)
    return PartitionFetch(
        wanted, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reads_committed=reads_committed
    )


async def read_shared(
    broker: Broker,
    partition: Partition,
    led: LedSharePartition,
    wanted: Wanted,
    max_bytes: int,
    *,
    reads_committed: bool,
) -> SharedRead:
    """Read and acquire; nothing if there is nothing, or another fetch reads the partition now.

    Raises `KafkaError`.
    """
    for _ in range(READS_OF_GAPS):
        led.log_starts_at(partition.record.log_start_offset)
        read_from = led.begin_read()
        if read_from is None:
            break
        fetch = partition_fetch(partition, read_from, max_bytes, reads_committed)
        try:
            if read_from >= fetch.end_offset:
                return SharedRead()
            read, batches = await _read(broker, fetch, partition, max_bytes)
        finally:
            led.give_up_read()
        if not batches:
            read.release()
            break
        try:
            acquired = led.end_read(wanted, read_from, [one.batch for one in batches])
        except BaseException:
            read.release()
            raise
        if acquired:
            _cut(read, batches, acquired[-1].last)
            return SharedRead(acquired, read)
        read.release()
    return SharedRead()


async def _read(
    broker: Broker, fetch: PartitionFetch, partition: Partition, max_bytes: int
) -> tuple[Read, list[ReadBatch]]:
    loads = FetchLoads(broker)
    loaded: list[CachedSegment] = loads.loaded
    try:
        await loads.load_all([(fetch, partition, max_bytes)], LoadNotes())
        fetch.check_offset()
        if fetch.error_code or partition.references is None:
            return Read(), []
        read = broker.logs.reader.read(
            partition, fetch.wanted.fetch_offset, max_bytes, True, loaded, fetch.stable_end
        )
        if read.is_missing and fetch.load_error_code:
            read.release()
            raise KafkaError(fetch.load_error_code, "the records could not be read")
        if broker.logs.reader.is_short_of_memory:
            read.detach()
        end_offset = fetch.end_offset
        aborted = (
            partition.aborted.between(fetch.wanted.fetch_offset, min(read.next_offset, end_offset))
            if fetch.reads_committed and partition.aborted is not None and read.size_bytes
            else None
        )
        return read, list(read_batches(read.views, aborted))
    except CorruptDataError as problem:
        logger.error("a segment is damaged and cannot be served", extra={"problem": str(problem)})
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the records are damaged") from problem
    finally:
        for segment in loaded:
            segment.release()


def _cut(read: Read, batches: Sequence[ReadBatch], last_offset: int) -> None:
    """Leave out the bytes behind what was acquired."""
    size_bytes = bytes_through(batches, last_offset)
    if size_bytes < read.size_bytes and read.reply_memory is None:
        read.views = Pieces(read.views).slices(0, size_bytes)
        read.size_bytes = size_bytes
