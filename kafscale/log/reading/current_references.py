"""Loads of segments while merging and expiry remove what this broker still believes to be there.

A broker that hears late of a merge, or has planned a read before it, may ask for a segment whose object is gone.
What the partition's record names now then says whether that is an error. One that hears late of a topic's end may
find the objects of the next topic of the name: their leader epochs are others.
"""

import logging

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment_check import OtherTopicError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment

logger = logging.getLogger(__name__)

# A load that began before leader epochs were compared no longer may be shared, and fail once more.
_ATTEMPTS = 4


class OutdatedReferenceError(Exception):
    """The segment's object is gone, and the partition's record does not name it any more: plan again."""


async def load_named(
    logs: LogManager, partition: Partition, reference: SegmentReference, offset: int
) -> CachedSegment:
    """What holds `offset` of the segment, held, as `LogReader.load` gives it.

    Raises `OutdatedReferenceError`, `ObjectNotFoundError` only if the record as it is now names the object,
    `CorruptDataError`, `StoreError`.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return await logs.reader.load(partition, reference, offset)
        except ObjectNotFoundError:
            if await _is_named(logs, partition, reference):
                logs.on_missing(partition, reference)
                raise
            raise OutdatedReferenceError from None
        except OtherTopicError as problem:
            if not attempts_left:
                raise
            await _vouch(logs, partition, problem)
    raise AssertionError("the last attempt returns or raises")


async def _vouch(logs: LogManager, partition: Partition, problem: OtherTopicError) -> None:
    """Find out whether the record that is known here is that of an older topic, whose name came back.

    Raises `StoreUnavailableError` if it is. If not, leader epochs are compared no longer: other writers of this
    format put in what their clients sent.
    """
    if partition.compares_epochs:
        if not await logs.is_same_still(partition):
            raise StoreUnavailableError(f"{partition.id} is a partition of another topic by now") from problem
        logger.info("segments have other leader epochs than their record", extra={"problem": str(problem)})
        partition.compares_epochs = False


async def _is_named(logs: LogManager, partition: Partition, reference: SegmentReference) -> bool:
    """Whether the partition's references, as they are now, have this one among them."""
    if partition.is_followed and partition.references is not None and _names(partition, reference):
        await logs.read_again(partition)
    await logs.load(partition)
    return _names(partition, reference)


def _names(partition: Partition, reference: SegmentReference) -> bool:
    references = partition.references
    return references is not None and next(references.from_offset(reference.base_offset), None) == reference
