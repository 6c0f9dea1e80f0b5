"""Loads segments although merging and expiry may have deleted what this broker's view still names.

A broker that learns late of a merge, or has planned a read before it, may read a segment whose object is gone. It is
an error only if the partition's record still names the object. A broker that learns late of a topic's deletion may
find the objects of the next topic of that name: their leader epochs are others.
"""

import logging

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment_check import OtherTopicError
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.reading.cached_segment import CachedSegment

logger = logging.getLogger(__name__)

# A load that began while leader epochs were still compared may be shared, and fail once more.
_ATTEMPTS = 4


class OutdatedReferenceError(Exception):
    """The segment's object is gone, and the partition's record no longer names it: plan again."""


async def load_named(
    logs: LogManager, partition: Partition, reference: SegmentReference, offset: int
) -> CachedSegment:
    """The segment, or its chunk with `offset`, held as by `LogReader.load`.

    Raises `OutdatedReferenceError`, `ObjectNotFoundError` only if the record as it is now names the object,
    `CorruptDataError`, `StoreError`.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return await logs.reader.load(partition, reference, offset)
        except ObjectNotFoundError:
            if await _is_named(logs, partition, reference):
                logs.report_missing(partition, reference)
                raise
            raise OutdatedReferenceError from None
        except OtherTopicError as problem:
            if not attempts_left:
                raise
            await _vouch(logs, partition, problem)
    raise AssertionError("the last attempt returns or raises")


async def _vouch(logs: LogManager, partition: Partition, problem: OtherTopicError) -> None:
    """Check that the record known here is not that of an older topic of the same name.

    Raises `StoreUnavailableError` if it is. If not, leader epochs are no longer compared: other writers of this
    format store what their clients sent.
    """
    if partition.compares_epochs:
        if not await logs.stored.is_same_still(partition):
            raise StoreUnavailableError(f"{partition.id} is a partition of another topic by now") from problem
        logger.info("segments have other leader epochs than their record", extra={"problem": str(problem)})
        partition.compares_epochs = False


async def _is_named(logs: LogManager, partition: Partition, reference: SegmentReference) -> bool:
    """True if the partition's references, as they are now, include this one."""
    if partition.is_followed and partition.references is not None and _names(partition, reference):
        await logs.stored.read_again(partition)
    await logs.load(partition)
    return _names(partition, reference)


def _names(partition: Partition, reference: SegmentReference) -> bool:
    references = partition.references
    return references is not None and next(references.from_offset(reference.base_offset), None) == reference
