"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId over a whole broker."""

from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from kafscale.errors import StoreUnavailableError
from kafscale.formats.partition_record import decode_partition_record
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving import store_deadline
from tests.support import wire
from tests.support.in_process_broker import Client, in_process_broker, until
from tests.support.log_transactions import writer
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import lead_elsewhere
from tests.support.waiting import PATIENCE_MS

TIME_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def list_offset(
    client: Client,
    topic: str,
    timestamp: int,
    *,
    version: int = 7,
    partition: int = 0,
    isolation_level: int = 0,
    **fields: int,
) -> Any:
    wanted_topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = {"current_leader_epoch": -1, "max_num_offsets": 1, **fields}
    one = wanted_topic.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **wanted)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[wanted_topic(name=topic, partitions=[one])],
    )
    return (await client.call(request, ListOffsetsResponse, version)).topics[0].partitions[0]


async def delete_before(
    client: Client, topic: str, offset: int, *, partition: int = 0, timeout_ms: int = PATIENCE_MS
) -> tuple[int, int]:
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    one = wanted.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[wanted(name=topic, partitions=[one])], timeout_ms=timeout_ms)
    part = (await client.call(request, DeleteRecordsResponse, 2)).topics[0].partitions[0]
    return part.error_code, part.low_watermark


async def produce_times(client: Client, topic: str, *seconds: list[int]) -> None:
    """One segment for each list, its records at these seconds."""
    for one in seconds:
        stamps = [TIME_MS + 1000 * second for second in one]
        await client.produce(topic, 0, wire.batch([b"x"] * len(one), timestamp=stamps))


# --- ListOffsets


@pytest.mark.parametrize("cold", [False, True])
@on_uvloop
async def test_the_first_record_at_or_after_a_time(cold: bool) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 3, 2], [5], [4, 6])
        for second, expected in ((0, (0, 1)), (2, (1, 3)), (3, (1, 3)), (4, (3, 5)), (6, (5, 6))):
            if cold:
                broker.forget_cached(topic)
            part = await list_offset(client, topic, TIME_MS + 1000 * second)
            assert part.error_code == 0
            assert (part.offset, part.timestamp) == (expected[0], TIME_MS + 1000 * expected[1])
            assert part.leader_epoch == broker.partition(topic).record.leader_epoch
        part = await list_offset(client, topic, TIME_MS + 6001)
        assert (part.error_code, part.offset, part.timestamp, part.leader_epoch) == (0, -1, -1, -1)


@on_uvloop
async def test_the_ends_and_the_latest_time() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for stamp in (LATEST, EARLIEST):
            assert (await list_offset(client, topic, stamp)).offset == 0
        assert (await list_offset(client, topic, MAX_TIMESTAMP)).offset == -1
        await produce_times(client, topic, [1, 9, 2], [9], [4])
        assert (await list_offset(client, topic, LATEST)).offset == 5
        assert (await list_offset(client, topic, EARLIEST)).offset == 0
        part = await list_offset(client, topic, MAX_TIMESTAMP)
        assert (part.offset, part.timestamp) == (1, TIME_MS + 9000)
        assert await delete_before(client, topic, 2) == (0, 2)
        assert (await list_offset(client, topic, EARLIEST)).offset == 2
        assert (await list_offset(client, topic, TIME_MS)).offset == 2


@on_uvloop
async def test_times_that_have_no_meaning_in_a_version_are_refused() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for version, timestamp in ((6, MAX_TIMESTAMP), (7, -4), (7, -(2**63))):
            part = await list_offset(client, topic, timestamp, version=version)
            assert part.error_code == ErrorCode.UNSUPPORTED_VERSION


@on_uvloop
async def test_version_0_lists_where_segments_start() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2], [3, 4], [5, 6])
        for stamp, limit, expected in (
            (LATEST, 10, [6, 4, 2, 0]),
            (LATEST, 2, [6, 4]),
            (EARLIEST, 10, [0]),
            (TIME_MS + 4000, 10, [2, 0]),
            (LATEST, 0, []),
            (LATEST, -1, []),
        ):
            part = await list_offset(client, topic, stamp, version=0, max_num_offsets=limit)
            assert part.old_style_offsets == expected


@on_uvloop
async def test_a_segment_that_cannot_be_read_is_a_storage_error() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1])
        await broker.seal(topic)
        broker.forget_cached(topic)
        broker.objects.fail("read_into", "*.kfs", StoreUnavailableError("away"))
        assert (await list_offset(client, topic, TIME_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.objects.lie("*.kfs", lambda data: data[:-1])
        assert (await list_offset(client, topic, TIME_MS)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.objects.tell_the_truth()
        assert (await list_offset(client, topic, TIME_MS)).offset == 0


@on_uvloop
async def test_partitions_and_epochs_are_checked() -> None:
    async with in_process_broker() as first:
        topic = await first.create_topic()
    async with (
        in_process_broker(metadata=first.metadata, objects=first.objects) as broker,
        broker.connect() as client,
    ):
        epoch = broker.partition(topic).record.leader_epoch
        for current, code in (
            (epoch, 0),
            (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            part = await list_offset(client, topic, LATEST, current_leader_epoch=current)
            assert part.error_code == code
        part = await list_offset(client, topic, LATEST, partition=1)
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        part = await list_offset(client, "absent", LATEST)
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_many_partitions_are_looked_up_within_bounds() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        wanted = ListOffsetsRequest.ListOffsetsTopic
        partitions = [
            wanted.ListOffsetsPartition(
                partition_index=index, current_leader_epoch=-1, timestamp=LATEST, max_num_offsets=1
            )
            for index in range(1000)
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[wanted(name=topic, partitions=partitions)]
        )
        reply = await client.call(request, ListOffsetsResponse, 7)
        codes = [part.error_code for part in reply.topics[0].partitions]
        assert codes == [0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 999]


@on_uvloop
async def test_partition_listed_again_is_refused_once_as_in_kafka() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        wanted = ListOffsetsRequest.ListOffsetsTopic

        def partitions(indexes: list[int]) -> Any:
            return wanted(
                name=topic,
                partitions=[
                    wanted.ListOffsetsPartition(
                        partition_index=index, current_leader_epoch=-1, timestamp=LATEST, max_num_offsets=1
                    )
                    for index in indexes
                ],
            )

        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[partitions([1] * 700 + [0]), partitions([1])]
        )
        (answer,) = (await client.call(request, ListOffsetsResponse, 7)).topics
        assert [(one.partition_index, one.error_code, one.offset) for one in answer.partitions] == [
            (1, ErrorCode.INVALID_REQUEST, -1),
            (0, ErrorCode.NONE, 0),
        ]


@pytest.mark.parametrize("version", range(2, 8))
@on_uvloop
async def test_the_latest_committed_offset_is_the_last_stable_one(version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        ends = []

        async def list_ends() -> None:
            parts = [
                await list_offset(client, topic, LATEST, version=version, isolation_level=level)
                for level in (0, 1)
            ]
            assert {part.error_code for part in parts} == {0}
            if version >= 4:
                assert {part.leader_epoch for part in parts} == {broker.partition(topic).record.leader_epoch}
            ends.append(tuple(part.offset for part in parts))

        await list_ends()
        await write.append(-1, [b"a"], is_transactional=False)
        await list_ends()
        await write.append(1, [b"b", b"c"])
        await write.append(2, [b"d"])
        await list_ends()
        await write.commit(1)
        await list_ends()
        await write.abort(2)
        await list_ends()
        assert ends == [(0, 0), (1, 1), (4, 1), (5, 3), (6, 6)]
        part = await list_offset(client, topic, EARLIEST, version=version, isolation_level=1)
        assert part.offset == 0


@on_uvloop
async def test_a_time_above_the_last_stable_offset_is_not_found() -> None:
    """As in Kafka, which looks in the whole log first: the largest time below is not looked for."""
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        await write.append(-1, [b"a"], is_transactional=False, timestamp_ms=TIME_MS)
        await write.append(1, [b"b"], timestamp_ms=TIME_MS + 1000)

        async def found(timestamp: int, isolation_level: int) -> tuple[int, int, int]:
            part = await list_offset(client, topic, timestamp, isolation_level=isolation_level)
            assert part.error_code == 0
            return part.offset, part.timestamp, part.leader_epoch

        epoch = broker.partition(topic).record.leader_epoch
        for timestamp in (TIME_MS + 1, MAX_TIMESTAMP):
            assert await found(timestamp, 0) == (1, TIME_MS + 1000, epoch)
            assert await found(timestamp, 1) == (-1, -1, -1)
        assert await found(TIME_MS, 1) == (0, TIME_MS, epoch)
        await write.end(1, commits=False, timestamp_ms=TIME_MS)
        for timestamp in (TIME_MS + 1, MAX_TIMESTAMP):
            assert await found(timestamp, 1) == (1, TIME_MS + 1000, epoch)


# --- OffsetForLeaderEpoch


@on_uvloop
async def test_partition_with_several_epochs_is_answered_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        epochs = [5] * 300 + [broker.partition(topic).record.leader_epoch]
        partitions = [
            wanted.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            for epoch in epochs
        ]
        request = OffsetForLeaderEpochRequest(
            replica_id=-2, topics=[wanted(topic=topic, partitions=partitions)]
        )
        (answer,) = (await client.call(request, OffsetForLeaderEpochResponse, 4)).topics
        ((one,),) = [answer.partitions]
        assert (one.partition, one.leader_epoch, one.end_offset) == (0, epochs[-1], 0)


@on_uvloop
async def test_where_each_leader_epoch_ended() -> None:
    async with in_process_broker() as first:
        topic = await first.create_topic()
        async with first.connect() as client:
            await produce_times(client, topic, [1, 2, 3])
        epoch = first.partition(topic).record.leader_epoch
    async with (
        in_process_broker(metadata=first.metadata, objects=first.objects) as second,
        second.connect() as client,
    ):
        await produce_times(client, topic, [4, 5])

        async def end_of(leader_epoch: int, current: int = -1) -> tuple[int, int, int]:
            wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
            one = wanted.OffsetForLeaderPartition(
                partition=0, current_leader_epoch=current, leader_epoch=leader_epoch
            )
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[wanted(topic=topic, partitions=[one])]
            )
            part = (await client.call(request, OffsetForLeaderEpochResponse, 4)).topics[0].partitions[0]
            return part.error_code, part.leader_epoch, part.end_offset

        assert await end_of(epoch) == (0, epoch, 3)
        assert await end_of(epoch + 1) == (0, epoch + 1, 5)
        assert await end_of(epoch + 2) == (0, -1, -1)
        assert await end_of(epoch, current=epoch) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


# --- DeleteRecords


@on_uvloop
async def test_deleted_records_are_gone_and_later_ones_stay() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2], [3, 4], [5, 6])
        assert await delete_before(client, topic, 3) == (0, 3)
        assert (await client.fetch(topic, {0: 2}))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        part = (await client.fetch(topic, {0: 3}))[0]
        assert part.log_start_offset == 3
        assert [offset for offset, _ in wire.records_in(part.records)] == [2, 3, 4, 5]  # the batch is whole
        assert await delete_before(client, topic, 1) == (0, 3)
        assert await delete_before(client, topic, -1) == (0, 6)
        part = (await client.fetch(topic, {0: 6}, max_wait_ms=0))[0]
        assert (part.error_code, part.high_watermark, part.log_start_offset) == (0, 6, 6)
        assert (await client.produce(topic, 0, wire.batch([b"next"]))).base_offset == 6
        part = (await client.fetch(topic, {0: 6}))[0]
        assert wire.records_in(part.records) == [(6, b"next")]


@on_uvloop
async def test_the_log_start_offset_survives_a_restart() -> None:
    async with in_process_broker() as first, first.connect() as client:
        topic = await first.create_topic()
        await produce_times(client, topic, [1, 2], [3, 4])
        await delete_before(client, topic, 2)
    async with (
        in_process_broker(metadata=first.metadata, objects=first.objects) as second,
        second.connect() as client,
    ):
        assert (await list_offset(client, topic, EARLIEST)).offset == 2
        part = (await client.fetch(topic, {0: 2}))[0]
        assert [offset for offset, _ in wire.records_in(part.records)] == [2, 3]


@on_uvloop
async def test_deletions_outside_the_log_are_refused() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2])
        for offset in (-2, 3, 2**62):
            assert await delete_before(client, topic, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete_before(client, topic, 0, partition=4) == (unknown, -1)
        assert await delete_before(client, "absent", 0) == (unknown, -1)


@on_uvloop
async def test_a_deletion_meets_a_flush_and_both_come_true() -> None:
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as admin:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2])
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            await hold.reached()
            assert await delete_before(admin, topic, 2) == (0, 2)
        assert (await client.receive_produce())[1][0].base_offset == 2
        part = (await client.fetch(topic, {0: 2}))[0]
        assert (part.log_start_offset, wire.records_in(part.records)) == (2, [(2, b"x")])


@on_uvloop
async def test_a_replaced_leader_deletes_nothing() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2])
        partition = broker.partition(topic)
        await lead_elsewhere(broker.metadata, topic, objects=broker.objects.inner)
        assert await delete_before(client, topic, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        await client.produce(topic, 0, wire.batch([b"x"]))  # is refused, and shows this broker its place
        assert not partition.is_led
        assert await delete_before(client, topic, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert partition.log is None
        held = await broker.metadata.get(keys.partition(topic, 0))
        assert held is not None
        assert decode_partition_record(held.key, held.value).log_start_offset == 0


@on_uvloop
async def test_a_deletion_goes_on_after_its_client_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_deadline, "STORE_DEADLINE_SEC", 0.02)
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2])
        async with broker.partition(topic).record_lock:
            assert await delete_before(client, topic, 1, timeout_ms=20) == (ErrorCode.REQUEST_TIMED_OUT, -1)
        await until(lambda: broker.partition(topic).record.log_start_offset == 1, "it came true")


@on_uvloop
async def test_partition_deleted_from_again_is_answered_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2], [3])
        wanted = DeleteRecordsRequest.DeleteRecordsTopic
        partitions = [wanted.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (9, 9, 2)]
        request = DeleteRecordsRequest(
            topics=[wanted(name=topic, partitions=partitions)], timeout_ms=PATIENCE_MS
        )
        (answer,) = (await client.call(request, DeleteRecordsResponse, 2)).topics
        assert [(one.error_code, one.low_watermark) for one in answer.partitions] == [(0, 2)]


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
@on_uvloop
async def test_deletion_without_time_is_answered_when_it_is_done(timeout_ms: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, [1, 2])
        assert await delete_before(client, topic, 1, timeout_ms=timeout_ms) == (ErrorCode.NONE, 1)
        assert await delete_before(client, topic, 3, timeout_ms=timeout_ms) == (
            ErrorCode.OFFSET_OUT_OF_RANGE,
            -1,
        )


# --- InitProducerId


async def init_producer_id(client: Client, version: int = 4) -> Any:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
    )
    return await client.call(request, InitProducerIdResponse, version)


@on_uvloop
async def test_producer_ids_are_new_every_time_and_after_a_restart() -> None:
    given = []
    async with in_process_broker() as first, first.connect() as client:
        for version in range(6):
            reply = await init_producer_id(client, version=version)
            assert (reply.error_code, reply.producer_epoch) == (0, 0)
            given.append(reply.producer_id)
    async with (
        in_process_broker(metadata=first.metadata, objects=first.objects) as second,
        second.connect() as client,
    ):
        given.append((await init_producer_id(client)).producer_id)
    assert len(set(given)) == 7
    assert min(given) >= 0
