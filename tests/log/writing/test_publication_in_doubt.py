"""Answers to producers whose publication has an unknown outcome while another leader takes over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from kafscale.cluster.leadership import next_epoch
from kafscale.errors import StoreIndeterminateError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
    is_published_in,
)
from kafscale.log import manager as log_manager
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Compare, KeyValue, Operation, Put, TransactionResult
from kafscale.protocol.error_codes import ErrorCode
from kafscale.tools.fsck.dropping import without_segments
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

TOPIC = "topic"
KEY = keys.partition(TOPIC, 0)


class DoubtfulMetadata(MemoryMetadata):
    """The next change of the partition's record ends without an answer, done or not; then `meanwhile` happens."""

    def __init__(self) -> None:
        super().__init__()
        self.is_doubtful = False
        self.is_done = False
        self.is_away = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not self.is_doubtful or not any(isinstance(one, Put) and one.key == KEY for one in operations):
            return await super().transact(compares, operations)
        self.is_doubtful = False
        if self.is_done:
            await super().transact(compares, operations)
        if self.meanwhile is not None:
            await self.meanwhile()
        raise StoreIndeterminateError("the answer was lost")

    async def get(self, key: str) -> KeyValue | None:
        if self.is_away and key == KEY:
            raise StoreIndeterminateError("no answer")
        return await super().get(key)

    async def another_leader_claims(self) -> None:
        await self._change(next_epoch)

    async def fsck_drops_missing(self) -> None:
        await self._change(lambda record: without_segments(record, EMPTY_CHECKPOINT, {0}, "checkpoint")[0])

    async def is_changed_within_its_epoch(self) -> None:
        await self._change(lambda record: replace(record, log_start_offset=record.log_end_offset))

    async def _change(self, change: Callable[[PartitionRecord], PartitionRecord]) -> None:
        found = await super().get(KEY)
        assert found is not None
        changed = encode_partition_record(change(decode_partition_record(KEY, found.value)))
        await super().transact([Compare(KEY, found.mod_revision)], [Put(KEY, changed)])


async def begun(broker: InProcessBroker) -> None:
    """A topic with one published record."""
    await broker.create_topic(TOPIC)
    async with broker.connect() as client:
        assert (await client.produce(TOPIC, 0, wire.batch([b"before"]))).base_offset == 0


@on_uvloop
async def test_records_published_before_a_new_leader_are_acknowledged() -> None:
    """They were answered with NOT_LEADER_OR_FOLLOWER: librdkafka then stored one of them a second time."""
    metadata = DoubtfulMetadata()
    async with in_process_broker(metadata=metadata) as broker:
        await begun(broker)
        metadata.is_doubtful = metadata.is_done = True
        metadata.meanwhile = metadata.another_leader_claims
        async with broker.connect() as client:
            answer = await client.produce(TOPIC, 0, wire.batch([b"in doubt", b"too"]))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)
        found = await metadata.get(KEY)
        assert found is not None
        assert decode_partition_record(KEY, found.value).log_end_offset == 3


@on_uvloop
async def test_records_unpublished_before_a_new_leader_are_refused() -> None:
    metadata = DoubtfulMetadata()
    async with in_process_broker(metadata=metadata) as broker:
        await begun(broker)
        metadata.is_doubtful, metadata.is_done = True, False
        metadata.meanwhile = metadata.another_leader_claims
        async with broker.connect() as client:
            answer = await client.produce(TOPIC, 0, wire.batch([b"in doubt"]))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = await metadata.get(KEY)
        assert found is not None
        assert decode_partition_record(KEY, found.value).log_end_offset == 1


@on_uvloop
async def test_record_in_doubt_repaired_by_fsck_is_not_acknowledged() -> None:
    """A leader without a lease read fsck's record back, of its own epoch, and acknowledged what is not in it."""
    metadata = DoubtfulMetadata()
    async with in_process_broker(metadata=metadata) as broker:
        await begun(broker)
        metadata.is_doubtful, metadata.is_done = True, False
        metadata.meanwhile = metadata.fsck_drops_missing
        async with broker.connect() as client:
            answer = await client.produce(TOPIC, 0, wire.batch([b"in doubt"]))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = await metadata.get(KEY)
        assert found is not None
        assert decode_partition_record(KEY, found.value).log_end_offset == 1


@on_uvloop
async def test_record_in_doubt_changed_within_its_epoch_times_out() -> None:
    """The outcome stays unknown, no matter which broker wrote the record."""
    metadata = DoubtfulMetadata()
    async with in_process_broker(metadata=metadata) as broker:
        await begun(broker)
        metadata.is_doubtful, metadata.is_done = True, False
        metadata.meanwhile = metadata.is_changed_within_its_epoch
        async with broker.connect() as client:
            answer = await client.produce(TOPIC, 0, wire.batch([b"in doubt"]))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@on_uvloop
async def test_a_hand_over_with_an_unknown_outcome_ends_as_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush behind the publication in doubt is certainly not published, and is refused."""
    monkeypatch.setattr(log_manager, "_RESIGN_SEC", 0.05)
    metadata = DoubtfulMetadata()
    async with in_process_broker(metadata=metadata) as broker:
        await begun(broker)
        partition = broker.partition(TOPIC)
        metadata.is_doubtful = metadata.is_away = metadata.is_done = True
        async with broker.connect() as client:
            await client.send_produce(TOPIC, {0: wire.batch([b"in doubt"])})
            await until(lambda: not metadata.is_doubtful, "the publication has begun")
            await client.send_produce(TOPIC, {0: wire.batch([b"behind it"])})
            log = partition.log
            assert log is not None
            await until(lambda: len(partition.flush_tasks) == 2, "another flush has begun")
            await until(lambda: log.waiting is None, "it is on its way behind it")
            await asyncio.wait_for(broker.process.serving.logs.resign(partition), 10)
            assert (await client.receive_produce())[1][0].error_code == ErrorCode.REQUEST_TIMED_OUT
            assert (await client.receive_produce())[1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata.is_away = False


def record(leader_epoch: int, log_end_offset: int, *epochs: tuple[int, int]) -> PartitionRecord:
    return PartitionRecord(
        leader_epoch=leader_epoch,
        log_end_offset=log_end_offset,
        epochs=tuple(EpochStart(*one) for one in epochs),
    )


OURS = record(4, 20, (2, 0), (4, 10))


@pytest.mark.parametrize(
    ("successor", "last_offset", "answer"),
    [
        pytest.param(record(5, 25, (2, 0), (4, 10), (5, 25)), 24, True, id="published"),
        pytest.param(record(5, 20, (2, 0), (4, 10), (5, 20)), 24, False, id="not published"),
        pytest.param(record(6, 40, (2, 0), (4, 10), (5, 20)), 24, False, id="others published there"),
        pytest.param(record(7, 25, (2, 0), (4, 10), (7, 25)), 24, True, id="a leader between wrote nothing"),
        pytest.param(record(5, 10, (2, 0), (5, 10)), 10, False, id="nothing at all under this epoch"),
        pytest.param(record(200, 900, (72, 500), (200, 890)), 24, None, id="long forgotten"),
        pytest.param(record(5, 30, (0, 0), (4, 15), (5, 28)), 24, False, id="the topic was made anew"),
        pytest.param(record(4, 20, (2, 0), (4, 10)), 24, None, id="not of a later epoch"),
        pytest.param(record(3, 30, (2, 0), (3, 28)), 24, None, id="of an earlier epoch"),
        pytest.param(record(10_004, 20, (2, 0), (4, 10)), 24, False, id="rebuilt without it"),
        pytest.param(record(10_004, 25, (2, 0), (4, 10)), 24, True, id="rebuilt with it"),
    ],
)
def test_a_successors_epochs_show_whether_records_were_published(
    successor: PartitionRecord, last_offset: int, answer: bool | None
) -> None:
    assert is_published_in(successor, OURS, last_offset) is answer
