"""Makes one planned merge, from reading its sources to the swap, and notes what came of it."""

import logging
from collections.abc import Callable
from enum import Enum, auto

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.life.merge_candidates import MergeCandidates
from kafscale.log.life.merge_windows import PlannedMerge
from kafscale.log.life.removals import Removals
from kafscale.log.life.segment_merge import DamagedSourceError, KeyTakenError, SegmentMerge
from kafscale.log.life.segment_swap import SegmentSwap
from kafscale.log.life.source_reads import MissingSourceError, WindowReads
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.ops.metrics import MergeOutcome, Metrics

logger = logging.getLogger(__name__)


class Result(Enum):
    """The result of an attempt, as far as it matters to what is merged next."""

    MERGED = auto()
    """Published, or the next plan leaves out what stood in the way."""

    GIVEN_UP = auto()
    """The partition is led elsewhere, or the sources have expired."""

    FAILED = auto()
    """The metadata store or the object store failed."""

    DEFECT = auto()


class MergeWork:
    """Makes merges. Nothing that goes wrong with one partition is raised."""

    def __init__(
        self,
        merge: SegmentMerge,
        swap: SegmentSwap,
        candidates: MergeCandidates,
        logs: LogManager,
        removals: Removals,
        metrics: Metrics,
        index_version: Callable[[], int],
    ) -> None:
        self._merge = merge
        self._swap = swap
        self._candidates = candidates
        self._logs = logs
        self._removals = removals
        self._metrics = metrics
        self._index_version = index_version

    async def make(
        self, planned: PlannedMerge[Partition], reads: WindowReads | None = None, first: int = 0
    ) -> Result:
        """Merge the sources: those of the window from number `first` on, or a stream of them."""
        try:
            return await self._make(planned, reads, first)
        except Exception as problem:  # noqa: BLE001 - reported
            return self.report(planned.owner, problem)

    def report(self, partition: Partition, problem: Exception) -> Result:
        """Note that a plan or a merge of the partition failed."""
        self._metrics.merges.count(MergeOutcome.FAILED)
        if isinstance(problem, StoreError | CorruptDataError):
            logger.info(
                "could not merge segments, trying again later",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            self._candidates.failed(partition)
            return Result.FAILED
        # A defect. Segments that are not merged do less harm than a broker that stops for them.
        logger.error("could not merge segments", extra={"partition": str(partition.id)}, exc_info=problem)
        self._candidates.settle(partition)
        return Result.DEFECT

    async def _make(self, planned: PlannedMerge[Partition], reads: WindowReads | None, first: int) -> Result:
        partition, sources = planned.owner, planned.sources
        try:
            await self._logs.load(partition)
            merged = await self._merge.create(partition.id, sources, self._index_version(), reads, first)
            replaced = await self._swap.publish(partition, merged, sources)
        except DamagedSourceError as problem:
            logger.error("a segment cannot be read and is not merged", extra={"problem": str(problem)})
            self._candidates.leave_out(partition, problem.source)
        except MissingSourceError as problem:
            return await self._missing(partition, problem)
        except KeyTakenError as problem:
            logger.warning("merging other segments instead", extra={"problem": str(problem)})
            self._candidates.avoid_key(partition, sources)
        except FencedError as problem:
            return self._give_up(partition, problem)  # The log learns of it by itself.
        else:
            self._metrics.merges.published(len(replaced), merged.size_bytes if replaced else 0)
            self._candidates.merged(planned)
            self._logs.reader.forget_segments(partition, replaced)
            self._removals.remove_later(partition, replaced)
            return Result.MERGED if replaced else Result.GIVEN_UP
        self._metrics.merges.count(MergeOutcome.FAILED)
        return Result.MERGED

    async def _missing(self, partition: Partition, problem: MissingSourceError) -> Result:
        """Handle a source without an object: it was merged or has expired elsewhere, or is lost."""
        references = partition.references
        named = None if references is None else next(references.from_offset(problem.source.base_offset), None)
        if named != problem.source or not await self._logs.is_leader_still(partition):
            return self._give_up(partition, problem)
        logger.warning("a segment is gone and is not merged", extra={"problem": str(problem)})
        self._candidates.leave_out(partition, problem.source)
        self._logs.report_missing(partition, problem.source)
        self._metrics.merges.count(MergeOutcome.FAILED)
        return Result.MERGED

    def _give_up(self, partition: Partition, problem: Exception) -> Result:
        logger.info("abandoned a merge", extra={"partition": str(partition.id), "problem": str(problem)})
        self._metrics.merges.count(MergeOutcome.GIVEN_UP)
        return Result.GIVEN_UP
