"""Failures of background work at single items: counted, and logged at a limited rate.

Such work serves many partitions, topics or objects. An error that it does not know of one of them, a defect or a
value that it does not expect, ends neither the work nor the broker: the others are served.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Final

logger = logging.getLogger(__name__)

INTERVAL_SEC: Final = 60.0
LINES_PER_INTERVAL: Final = 10


class BackgroundWork(StrEnum):
    """The values are those of the metric's label."""

    CHECKPOINTS = "checkpoints"
    CLAIMS = "claims"
    COMPACTION = "compaction"
    CONFIGS = "configs"
    CONSUMER_LAG = "consumer lag"
    FOLLOWING = "following"
    GARBAGE = "garbage"
    GROUP_MARKERS = "group markers"
    GROUP_TOPICS = "topics of groups"
    JOURNALS = "journals"
    KEEPING = "keeping"
    MARKERS = "markers"
    OFFSET_EXPIRY = "offset expiry"
    REMOVALS = "removals"
    RETENTION = "retention"
    SEALING = "sealing"
    SHARE_STATES = "states of share groups"
    STORED_BYTES = "stored bytes of groups"
    TOPIC_DELETION = "topic deletion"
    TRANSACTIONS = "transactions"
    VIEW = "view"


class ItemFailures:
    """Of one kind of work. `counts` has the failures of each kind, for the metric."""

    def __init__(
        self,
        work: BackgroundWork,
        counts: Counter[str] | None = None,
        now_sec: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._now_sec = now_sec
        self._interval_ends_sec = float("-inf")
        self._logged: set[str] = set()
        self._unlogged = 0

    def report(self, item: object, problem: Exception) -> None:
        """The work goes on without `item`. Logged once a minute for an item, and for few items."""
        self._counts[self._work] += 1
        now_sec, name = self._now_sec(), str(item)
        if now_sec >= self._interval_ends_sec:
            self._interval_ends_sec = now_sec + INTERVAL_SEC
            self._logged.clear()
        if name in self._logged or len(self._logged) >= LINES_PER_INTERVAL:
            self._unlogged += 1
            return
        self._logged.add(name)
        logger.error(
            "background work goes on without one of its items",
            extra={
                "work": self._work.value,
                "item": name,
                "problem": str(problem) or repr(problem),
                "unlogged_before": self._unlogged,
            },
            exc_info=problem,
        )
        self._unlogged = 0
