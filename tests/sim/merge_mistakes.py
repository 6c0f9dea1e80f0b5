"""Mistakes in merging, put in on purpose: part of what the simulation must find (see cluster_mistakes.py)."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.checkpoint_pointer import CheckpointPointer
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life import garbage_collector, segment_swap
from kafscale.log.life.garbage import Candidate, garbage
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.references import SegmentReferences
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]

_GOOD = Conditions(longest_delay=0.02)
_SLOW = Conditions(longest_delay=0.5)
_QUITE_SLOW = Conditions(longest_delay=0.2)
_MORE = Load(batches=60, longest_pause=0.3)
_MERGING: dict[str, Any] = {
    "topics": {"t": 1},
    "flush_interval_ms": 0,
    "flushes_per_sec": 1000,
    "seal_interval_ms": 50,
    "seal_max_age_ms": 0,
    "merge_min_segments": 2,
    "merge_interval_ms": 100,
    "load": Load(batches=20, longest_pause=0.3),
}


def every_unnamed_merge_is_garbage(patch: pytest.MonkeyPatch) -> None:
    """A segment that no reference names is removed, although a merge in progress may be about to name it."""

    def hasty(
        found: Iterable[Candidate], references: Iterable[SegmentReference], leader_epoch: int
    ) -> list[str]:
        candidates, named = list(found), list(references)
        merged = {one.object_key for one in named if one.object_key}
        return [
            *garbage([one for one in candidates if one.parsed.last_offset is None], named, leader_epoch),
            *(
                one.object_key
                for one in candidates
                if one.parsed.last_offset is not None
                and one.object_key.replace(".index", ".kfs") not in merged
            ),
        ]

    patch.setattr(garbage_collector, "garbage", hasty)


def checkpoint_that_claims_to_hold_what_came_later(patch: pytest.MonkeyPatch) -> None:
    """A swap's checkpoint is named as if it held what was published while it was being written."""
    write = Checkpointer.write

    async def boastful(
        self: Checkpointer, held: Partition, log: PartitionLog, references: Iterable[SegmentReference]
    ) -> CheckpointPointer:
        pointer = await write(self, held, log, references)
        return CheckpointPointer(key=pointer.key, end_offset=log.record.log_end_offset)

    patch.setattr(Checkpointer, "write", boastful)


def checkpoints_that_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was begun before a swap is named after it, and names the sources again."""

    @contextlib.asynccontextmanager
    async def together(self: Checkpointer, held: Partition) -> AsyncIterator[None]:
        yield

    patch.setattr(Checkpointer, "alone", together)


def swap_whose_first_source_has_left(patch: pytest.MonkeyPatch) -> None:
    """A merge is published although the log begins behind its first source by now."""

    def what_is_left(self: SegmentReferences, merged: SegmentReference) -> list[SegmentReference]:
        start, end = self._within(merged)
        return self._references[start:end]

    patch.setattr(SegmentReferences, "sources_of", what_is_left)
    patch.setattr(segment_swap, "is_unchanged", lambda found, sources: bool(found))


MERGE_MISTAKES: dict[Plant, dict[str, Any]] = {
    every_unnamed_merge_is_garbage: {
        **_MERGING,
        "objects": _SLOW,
        "garbage_grace": 1,
        "garbage_interval": 1,
        "metadata": _SLOW,
    },
    checkpoint_that_claims_to_hold_what_came_later: {**_MERGING, "objects": _SLOW, "metadata": _GOOD},
    checkpoints_that_overtake_each_other: {
        **_MERGING,
        "checkpoint_segments": 2,
        "objects": _QUITE_SLOW,
        "metadata": _GOOD,
        "load": _MORE,
    },
    swap_whose_first_source_has_left: {
        **_MERGING,
        "kinds": ("delete records",),
        "troubles": 15,
        "longest_calm": 0.7,
        "objects": _QUITE_SLOW,
        "metadata": _GOOD,
        "load": _MORE,
    },
}
"""Every mistake, and what plan lets it show soon."""
