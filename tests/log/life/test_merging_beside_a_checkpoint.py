"""A merge that is planned while the partition's record moves on to another checkpoint loses nothing."""

import asyncio

import pytest

from kafscale.formats.checkpoint import Checkpoint
from kafscale.log import partition_log
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State
from kafscale.log.partition import Partition
from tests.log.life.test_merger import (
    EVERY,
    merge,
    merger,
    produce_segments,
    read_all,
    references,
    stored_record,
    values,
)
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_SEC


class SlowLoads:
    """Reads checkpoints as the checkpointer does, and hands out the first one when `go` is set."""

    def __init__(self, inner: Checkpointer) -> None:
        self._inner = inner
        self.has_read = asyncio.Event()
        self.go = asyncio.Event()

    async def load(self, partition: Partition) -> Checkpoint:
        checkpoint = await self._inner.load(partition)
        self.has_read.set()
        await self.go.wait()
        return checkpoint


@on_uvloop
async def test_merge_beside_a_new_checkpoint_keeps_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older checkpoint and the newer record have a hole between them: its records went with the merge."""
    monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 4)
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(8))
        partition = broker.partition("topic")
        await until(lambda: partition.record.checkpoint_key, "a checkpoint is named")
        older = partition.record.checkpoint_key
        # As of a partition that was not opened since it was claimed.
        partition.log = partition.references = None
        partition.leadership = PartitionLeadership(State.OPENING)
        loads = SlowLoads(broker.process.serving.log_parts.checkpointer)
        merger(broker)._candidates._checkpointer = loads  # type: ignore[assignment]
        merging = asyncio.create_task(merge(broker))
        await asyncio.wait_for(loads.has_read.wait(), 30)
        await produce_segments(broker, client, *[b"later-%d" % number for number in range(12)])
        assert partition.record.checkpoint_key != older
        monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 1000)
        await produce_segments(broker, client, *[b"last-%d" % number for number in range(8)])
        loads.go.set()
        await asyncio.wait_for(merging, PATIENCE_SEC)
        merger(broker)._candidates._checkpointer = broker.process.serving.log_parts.checkpointer
        while await merge(broker):
            pass
        assert len(references(broker)) < 28
        broker.forget_cached("topic")
        expected = [*values(8), *(b"later-%d" % number for number in range(12))]
        expected += [b"last-%d" % number for number in range(8)]
        assert await read_all(client, 28) == list(enumerate(expected))
        assert (await stored_record(broker)).log_end_offset == 28
