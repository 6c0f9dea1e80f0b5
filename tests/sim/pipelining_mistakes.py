"""Mistakes in what is done while two segments of a partition are on their way, put in on purpose."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.formats.partition_record import PartitionRecord
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.sealed_segment import SealedSegment
from tests.sim.links import Conditions
from tests.sim.simulated_clients import Load

Plant = Callable[[pytest.MonkeyPatch], None]

# Flushes as fast as the bucket takes them, of which some come late: leftovers, and much on its way.
_BUSY: dict[str, Any] = {
    "brokers": 2,
    "topics": {"t": 1},
    "kinds": ("late upload", "end lease"),
    "troubles": 6,
    "longest_calm": 1.0,
    "consumers": 0,
    "flush_interval_ms": 0,
    "metadata": Conditions(longest_delay=0.02),
    "objects": Conditions(longest_delay=0.5),
    "load": Load(batches=30, longest_pause=0.1),
}


def segments_published_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A segment is published as soon as it is there, whatever has become of the one before it."""

    def published(self: PartitionLog, sealed: SealedSegment, record: PartitionRecord) -> None:
        for producer_id, relative_offset in sealed.buffer.producer_ids:
            self.producers.publish(producer_id, sealed.reference.base_offset + relative_offset)
        self.adopt(record)
        self._sealed.remove(sealed)
        self._buffers.remove(sealed.buffer)
        self._closed_count -= 1
        self._has_published = True
        self._is_in_doubt = False
        for waiter, relative_offset in sealed.buffer.waiters:
            waiter.published(sealed.reference.base_offset + relative_offset, record.log_start_offset)

    patch.setattr(Partition, "publication", property(lambda self: None, lambda self, value: None))
    patch.setattr(PartitionLog, "published", published)


def segment_that_moves_into_the_next_one(patch: pytest.MonkeyPatch) -> None:
    """A segment goes one offset up although the one behind it lies in the bucket already."""

    def reseal(self: PartitionLog) -> SealedSegment:
        old = self._sealed.popleft()
        sealed = self._seal(old.buffer, old.reference.base_offset + 1, old.created_ms, old.index_version)
        self._sealed.appendleft(sealed)
        return sealed

    patch.setattr(PartitionLog, "may_reseal", True)
    patch.setattr(PartitionLog, "reseal", reseal)


PIPELINING_MISTAKES: dict[Plant, dict[str, Any]] = {
    segments_published_out_of_order: _BUSY,
    segment_that_moves_into_the_next_one: _BUSY,
}
