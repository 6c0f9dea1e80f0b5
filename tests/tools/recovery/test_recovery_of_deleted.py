"""A rebuild after a removal that ended half way: what was deleted stays deleted, and the check is content."""

from collections.abc import Sequence
from functools import partial

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import decode_checkpoint
from kafscale.journal.partition_state import unsealed
from kafscale.log.life import removals
from kafscale.tools.recovery.overlaps import DropReason
from kafscale.tools.recovery.plan import FoundCheckpoint
from kafscale.tools.recovery.rebuild import plan_rebuild
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.tools.fsck.two_stores import NAMESPACE, TwoStores, problems
from tests.tools.recovery.recovery_bucket import Silence
from tests.tools.recovery.test_recovery_plan import bases, checkpoint_of, damaged_at, flushed, plan, reasons
from tests.tools.recovery.test_recovery_write import rebuild

TOPIC = "topic"
A_SEGMENT = 1_048_480
"""Bytes of a record that is worth a segment of its own, and legal still."""


def is_sealed(broker: InProcessBroker, offset: int) -> bool:
    """True if the record there is in a segment."""
    references = broker.partition(TOPIC).record.segments
    return bool(references) and references[-1].last_offset == offset and not unsealed(references)


class HalfRemoved(ControlledStore):
    """A removal takes segments 2 and 3 and leaves those before: the store, or the broker, goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.removals = 0

    async def delete(self, keys: Sequence[str]) -> None:
        segments = [
            object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, offset, offset) for offset in range(4)
        ]
        if segments[0] in keys:
            gone = segments[2:]
            await super().delete(gone)
            self.removals += 1
            raise StoreUnavailableError("the store went away")
        await super().delete(keys)


@on_uvloop
async def test_deleted_records_that_partly_remain_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came back beside a hole, which fsck took for a loss (exit status 3)."""
    monkeypatch.setattr(removals, "GRACE_SEC", 0.0)
    objects = HalfRemoved()
    async with in_process_broker(objects=objects, s3_namespace=NAMESPACE, seal_interval_ms=10) as broker:
        await broker.create_topic(TOPIC)
        async with broker.connect() as client:
            for number in range(6):
                sent = wire.batch([b"%d" % number * A_SEGMENT])
                assert (await client.produce(TOPIC, 0, sent)).error_code == 0
                await until(partial(is_sealed, broker, number), "it is a segment")
        deletion = broker.process.serving.segment_life.record_deletion
        assert await deletion.delete_before(broker.partition(TOPIC), 4) == 4
        await until(lambda: objects.removals == 1, "the removal has ended half way")
    (planned,) = (await plan_rebuild(objects.inner, NAMESPACE, concurrency=4, progress=Silence())).topics
    dropped = planned.partitions[0].dropped
    assert [one.segment.base_offset for one in dropped if one.segment.key.endswith(".kfs")] == [0, 1]
    # Entries that were not collected yet have all of them.
    assert {one.segment.base_offset for one in dropped if one.reason is DropReason.DELETED} == {0, 1, 2, 3}
    stores = TwoStores()
    stores.objects = objects.inner
    await rebuild(stores.metadata, objects.inner)
    record = await stores.record(TOPIC)
    assert (record.log_start_offset, record.log_end_offset) == (4, 6)
    assert problems(await stores.check()) == []


def test_segment_below_the_newest_checkpoints_first_is_deleted() -> None:
    rest, first, second = flushed(0, 3, 0), flushed(10, 2, 0), flushed(12, 3, 0)
    found = plan(rest, first, second, checkpoint=checkpoint_of(12, 0, first))
    assert bases(found) == [10, 12]
    assert reasons(found) == {0: DropReason.DELETED}
    assert (found.record.log_start_offset, found.holes) == (10, ())


def test_all_below_a_checkpoint_without_segments_is_deleted() -> None:
    found = plan(flushed(0, 3, 0), flushed(20, 3, 1), checkpoint=checkpoint_of(20, 0))
    assert bases(found) == [20]


def test_stale_checkpoint_of_an_older_topic_deletes_nothing() -> None:
    found = plan(flushed(0, 3, 4), flushed(3, 2, 4), checkpoint=checkpoint_of(500, 2, flushed(400, 100, 2)))
    assert bases(found) == [0, 3]


def test_segment_restored_after_a_rebuild_without_it_comes_back() -> None:
    """The rebuild's own checkpoint begins behind what was damaged then."""
    segments = [flushed(offset, 1, 0) for offset in range(200)]
    first = plan(*segments[1:], damaged=[damaged_at(0, 0)])
    assert first.record.log_start_offset == 1
    checkpoint = decode_checkpoint(first.record.checkpoint_key, first.checkpoint_data)
    found = FoundCheckpoint(key=first.record.checkpoint_key, leader_epoch=0, checkpoint=checkpoint)
    assert plan(*segments, checkpoint=found).record.log_start_offset == 0
