"""Lost objects, deleted by a bucket's lifecycle rule for example: the log start offset moves after them.

A read reports an object that is missing although the record names it. The partition's leader then compares a listing
with the references, twice, some seconds apart, because a listing may lag, and looks for each missing object by its
key. lost_segments.py decides which segments the log may drop. The cluster marker must be there and be the right
one, so that an empty bucket, or a wrong one, never drops anything.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from kafscale.cluster.marker import read_marker
from kafscale.errors import CorruptDataError, ObjectNotFoundError, StoreError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.lost_segments import Loss, loss_of
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.metrics import LossOutcome, Metrics
from kafscale.tasks.bounded import map_bounded
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

BETWEEN_LOOKS_SEC = 5.0
# Consumers retry again and again; their partition is listed this often at most.
QUIET_SEC = 60.0
_SEARCHES_AT_ONCE = 4
_CALLS_AT_ONCE = 16


class LostObjects:
    """Searches the partitions of which a missing object was reported.

    `objects`: the store itself, not a replica of it. `is_store_away`: true if it is known not to answer.
    """

    def __init__(
        self,
        logs: LogManager,
        objects: ObjectStore,
        log_start: LogStart,
        namespace: str,
        cluster_id: str,
        is_store_away: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._logs = logs
        self._objects = objects
        self._log_start = log_start
        self._namespace = namespace
        self._cluster_id = cluster_id
        self._is_store_away = is_store_away
        self._metrics = metrics
        self._searches = TaskOwner()
        self._quiet_until_sec: dict[Partition, float] = {}
        self._turns = asyncio.Semaphore(_SEARCHES_AT_ONCE)

    # --- reports

    def report(self, partition: Partition, reference: SegmentReference) -> None:
        """Report an object that a read did not find although the partition's record names it. Returns at once."""
        if self._is_quiet(partition):
            return
        logger.warning(
            "an object that the partition's record names is missing",
            extra={
                "partition": str(partition.id),
                "object": self._key(partition, reference),
                "next": "looking for what else is" if partition.is_led else "its leader has to look",
            },
        )
        if partition.is_led:
            self._begin(partition)

    def compare(self, partition: Partition, first_listed: str | None) -> None:
        """Search if the first `.kfs` key of a listing of the partition lies behind its oldest object.

        `first_listed` is None if there was none. Without a loss it costs nothing. Returns at once.
        """
        oldest = next(iter(partition.references or ()), None)
        if oldest is None or not partition.is_led or object_keys.shares_its_object(oldest):
            return  # The oldest is a slice: it lies elsewhere, and so do all the others.
        listed = None if first_listed is None else object_keys.parse_segment_key(first_listed)
        is_missing = listed is None or listed.base_offset > oldest.base_offset
        if is_missing and not self._is_quiet(partition):
            self._begin(partition)

    def _is_quiet(self, partition: Partition) -> bool:
        """True if the partition was searched or reported a moment ago; otherwise it counts as reported now."""
        now_sec = asyncio.get_running_loop().time()
        self._quiet_until_sec = {
            quiet: until_sec for quiet, until_sec in self._quiet_until_sec.items() if until_sec > now_sec
        }
        if partition in self._quiet_until_sec or partition in self._searches:
            return True
        self._quiet_until_sec[partition] = now_sec + QUIET_SEC
        return False

    def _begin(self, partition: Partition) -> None:
        self._searches.spawn(self._search(partition), f"search {partition.id}", key=partition)

    # --- the search

    async def _search(self, partition: Partition) -> None:
        try:
            async with self._turns:
                await self.search(partition)
        except FencedError as fenced:
            # Another broker leads the partition, and searches itself.
            logger.debug("left to another leader: %s", fenced)
        except (StoreError, CorruptDataError) as problem:
            logger.warning(
                "could not find out what is missing, looking again at a later read",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
        except Exception:
            logger.exception("could not find out what is missing", extra={"partition": str(partition.id)})

    async def search(self, partition: Partition) -> Loss:
        """Find the missing objects, and move the log start after them if that is allowed; returns the loss.

        Raises `FencedError`, `StoreError`, `CorruptDataError`.
        """
        first = await self._missing(partition)
        if not first:
            return Loss()
        await asyncio.sleep(BETWEEN_LOOKS_SEC)
        second = await self._missing(partition)
        references = list(partition.references or ())
        loss = loss_of(references, second)
        if loss.inside:
            self._report_kept(partition, loss)
        elif droppable := loss_of(references, first & second).at_start:
            await self._drop(partition, droppable)
            self._quiet_until_sec.pop(partition, None)
        return loss

    async def _missing(self, partition: Partition) -> set[SegmentReference]:
        """The references whose objects are neither listed nor found by their key."""
        log = await self._logs.open(partition)
        if log is None or partition.references is None:
            raise FencedError(f"this broker does not lead {partition.id}")
        references = list(partition.references)
        prefix = object_keys.partition_prefix(self._namespace, partition.id.topic, partition.id.index)
        listed = {info.key async for info in self._objects.list(prefix)}
        unlisted = [reference for reference in references if self._key(partition, reference) not in listed]
        if not unlisted:
            return set()
        await self._check_marker()
        there = await map_bounded(lambda one: self._is_there(partition, one), unlisted, _CALLS_AT_ONCE)
        if self._is_store_away():
            raise StoreUnavailableError("the object store does not answer")
        # A segment that was merged or has expired meanwhile was deleted by this broker itself.
        named = set(partition.references or ())
        return {one for one, is_there in zip(unlisted, there, strict=True) if not is_there and one in named}

    async def _check_marker(self) -> None:
        found = await read_marker(self._objects, self._namespace)
        if found != self._cluster_id:
            raise CorruptDataError(
                object_keys.cluster_marker_key(self._namespace),
                f"it is that of cluster {found}, not {self._cluster_id}: nothing in this bucket counts as lost",
            )

    async def _is_there(self, partition: Partition, reference: SegmentReference) -> bool:
        try:
            await self._objects.size_bytes(self._key(partition, reference))
        except ObjectNotFoundError:
            return False
        return True

    def _key(self, partition: Partition, reference: SegmentReference) -> str:
        return object_keys.key_of_reference(
            self._namespace, partition.id.topic, partition.id.index, reference
        )

    # --- consequences

    def _report_kept(self, partition: Partition, loss: Loss) -> None:
        count = len(loss.at_start) + len(loss.inside)
        self._metrics.segments_lost[LossOutcome.KEPT] += count
        logger.error(
            "objects are missing behind older ones that are there: nothing is given up, reads of them fail; "
            "restore them, `kafscale fsck` lists them",
            extra={
                "partition": str(partition.id),
                "objects": count,
                "first": self._key(partition, loss.inside[0]),
            },
        )

    async def _drop(self, partition: Partition, lost: Sequence[SegmentReference]) -> None:
        moved = await self._log_start.drop(partition, lost[-1])
        self._metrics.segments_lost[LossOutcome.DROPPED] += len(moved.dropped)
        logger.error(
            "the oldest objects of a partition were removed by something else: its log starts after them now",
            extra={
                "partition": str(partition.id),
                "objects": len(moved.dropped),
                "first": self._key(partition, lost[0]),
                "log_start_offset": moved.log_start_offset,
            },
        )

    async def close(self) -> None:
        """Cancel the searches in progress."""
        await self._searches.close()
