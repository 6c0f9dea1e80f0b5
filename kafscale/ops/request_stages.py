"""The time of Fetch and Produce requests by stage, as histograms.

The stages of a request follow one another and add up to its duration. A stage that a request did not go through
(a Fetch that found everything in memory loads nothing) is not counted for it.
"""

from collections.abc import Iterator
from enum import StrEnum

from kafscale.ops.histogram import DURATION_BOUNDS_SEC, Histogram


class FetchStage(StrEnum):
    """Where a Fetch spends its time.

    `QUEUE`: from its last byte to its handler. `WAIT`: for `min_bytes`, at most `max_wait_ms`: deliberate. `PLAN`:
    finding partitions and ranges, and encoding. `LOAD`: reading from the object store. `CHECK`: checksums of what
    was loaded. `DECOMPRESS`: for a client without the codec. `SEND`: until the last byte is with the operating
    system.
    """

    QUEUE = "queue"
    WAIT = "wait"
    PLAN = "plan"
    LOAD = "load"
    CHECK = "check"
    DECOMPRESS = "decompress"
    SEND = "send"


class ProduceStage(StrEnum):
    """Where a Produce spends its time: in the partition whose outcome came last.

    `QUEUE`: from its last byte to its handler. `APPEND`: validation, and the copy into a buffer. `FLUSH_WAIT`:
    until the buffer is sealed. `UPLOAD`: of the segment. `COMMIT`: its publication in the metadata store, after
    those before it. `REPLY`: until the last byte is with the operating system.
    """

    QUEUE = "queue"
    APPEND = "append"
    FLUSH_WAIT = "flush_wait"
    UPLOAD = "upload"
    COMMIT = "commit"
    REPLY = "reply"


class FetchStages:
    """A histogram in seconds for each stage of Fetch. `active`: the duration without `WAIT` and `SEND`."""

    __slots__ = ("active", "check", "decompress", "load", "plan", "queue", "send", "wait")

    def __init__(self) -> None:
        self.active = Histogram(DURATION_BOUNDS_SEC)
        self.queue = Histogram(DURATION_BOUNDS_SEC)
        self.wait = Histogram(DURATION_BOUNDS_SEC)
        self.plan = Histogram(DURATION_BOUNDS_SEC)
        self.load = Histogram(DURATION_BOUNDS_SEC)
        self.check = Histogram(DURATION_BOUNDS_SEC)
        self.decompress = Histogram(DURATION_BOUNDS_SEC)
        self.send = Histogram(DURATION_BOUNDS_SEC)

    def __iter__(self) -> Iterator[tuple[str, Histogram]]:
        return ((stage.value, getattr(self, stage.value)) for stage in FetchStage)


class ProduceStages:
    """A histogram in seconds for each stage of Produce."""

    __slots__ = ("append", "commit", "flush_wait", "queue", "reply", "upload")

    def __init__(self) -> None:
        self.queue = Histogram(DURATION_BOUNDS_SEC)
        self.append = Histogram(DURATION_BOUNDS_SEC)
        self.flush_wait = Histogram(DURATION_BOUNDS_SEC)
        self.upload = Histogram(DURATION_BOUNDS_SEC)
        self.commit = Histogram(DURATION_BOUNDS_SEC)
        self.reply = Histogram(DURATION_BOUNDS_SEC)

    def __iter__(self) -> Iterator[tuple[str, Histogram]]:
        return ((stage.value, getattr(self, stage.value)) for stage in ProduceStage)
