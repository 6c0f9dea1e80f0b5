"""The time of Fetch and Produce requests by stage, as histograms.

The stages of a request follow one another and add up to its duration. A stage that a request did not go through
(a Fetch that found everything in memory loads nothing) is not counted for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafscale.ops import metric_families as families
from kafscale.ops.counted import observed
from kafscale.ops.histogram import Histogram
from kafscale.protocol.api_keys import ApiKey


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
    until the buffer is sealed. `UPLOAD`: until the journal's entry and all before it are stored. `COMMIT`: until its
    slice is part of the partition. `REPLY`: until the last byte is with the operating system.
    """

    QUEUE = "queue"
    APPEND = "append"
    FLUSH_WAIT = "flush_wait"
    UPLOAD = "upload"
    COMMIT = "commit"
    REPLY = "reply"


@dataclass(slots=True, eq=False)
class FetchStages:
    """A histogram in seconds for each stage of Fetch. `active`: the duration without `WAIT` and `SEND`."""

    active: Histogram = observed(families.REQUEST_ACTIVE, ApiKey.FETCH.name)
    queue: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.QUEUE.value)
    wait: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.WAIT.value)
    plan: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.PLAN.value)
    load: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.LOAD.value)
    check: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.CHECK.value)
    decompress: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.DECOMPRESS.value)
    send: Histogram = observed(families.REQUEST_STAGE, ApiKey.FETCH.name, FetchStage.SEND.value)

    def __iter__(self) -> Iterator[tuple[str, Histogram]]:
        return ((stage.value, getattr(self, stage.value)) for stage in FetchStage)


@dataclass(slots=True, eq=False)
class ProduceStages:
    """A histogram in seconds for each stage of Produce."""

    queue: Histogram = observed(families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.QUEUE.value)
    append: Histogram = observed(families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.APPEND.value)
    flush_wait: Histogram = observed(
        families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.FLUSH_WAIT.value
    )
    upload: Histogram = observed(families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.UPLOAD.value)
    commit: Histogram = observed(families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.COMMIT.value)
    reply: Histogram = observed(families.REQUEST_STAGE, ApiKey.PRODUCE.name, ProduceStage.REPLY.value)

    def __iter__(self) -> Iterator[tuple[str, Histogram]]:
        return ((stage.value, getattr(self, stage.value)) for stage in ProduceStage)
