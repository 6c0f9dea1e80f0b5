"""Mistakes in compaction, put in on purpose: part of what the simulation must find (see cluster_mistakes.py)."""

from collections.abc import Callable
from typing import Any

import pytest

from kafscale.log.compaction import offset_map
from kafscale.log.compaction.compactor import Compactor
from tests.sim.links import Conditions
from tests.sim.simulated_producers import Load

Plant = Callable[[pytest.MonkeyPatch], None]

COMPACTING: dict[str, Any] = {
    "keys": 3,
    "topics": {"t": 1},
    "flush_interval_ms": 0,
    "flushes_per_sec": 1000,
    "seal_interval_ms": 50,
    "seal_max_age_ms": 0,
    "merge_min_segments": 3,
    "merge_interval_ms": 100,
    "garbage_interval": 1,
    "kinds": ("kill", "pause", "end lease", "delay", "delete records", "add broker", "stop"),
    "load": Load(batches=25, longest_pause=0.3),
}
"""A plan in which segments are compacted again and again, beside merges, hand-overs and crashes."""

_SLOW = Conditions(longest_delay=0.5)


def what_is_being_made_is_garbage(patch: pytest.MonkeyPatch) -> None:
    """A compacted segment that is not published yet is taken for what a failed attempt left."""
    patch.setattr(Compactor, "is_making", lambda self, key: False)


def newest_record_goes_too(patch: pytest.MonkeyPatch) -> None:
    """The map says of the newest record of a key that there is a newer one."""
    get = offset_map.OffsetMap.get

    def boastful(self: offset_map.OffsetMap, key: bytes) -> int:
        return get(self, key) + 1

    patch.setattr(offset_map.OffsetMap, "get", boastful)


COMPACTION_MISTAKES: dict[Plant, dict[str, Any]] = {
    what_is_being_made_is_garbage: {
        **COMPACTING,
        "objects": _SLOW,
        "metadata": _SLOW,
        "garbage_grace": 0,
    },
    newest_record_goes_too: COMPACTING,
}
"""Every mistake, and what plan lets it show soon."""
