"""DescribeProducers: who wrote to a partition, and since which offset each has a transaction open (KIP-664)."""

import asyncio
from typing import Any

import pytest
from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from kafscale.handlers import describe_producers
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_fetch_elsewhere import TOPIC, pair
from tests.support.in_process_broker import Client, in_process_broker
from tests.support.log_transactions import NOW_MS, writer
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import lead_elsewhere
from tests.support.waiting import PATIENCE_SEC


async def described(client: Client, topic: str, *indexes: int) -> dict[int, Any]:
    one = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(indexes))
    request = DescribeProducersRequest(topics=[one])
    reply = await client.call(request, DescribeProducersResponse, 0)
    return {part.partition_index: part for found in reply.topics for part in found.partitions}


def rows(part: Any) -> list[tuple[int, int, int, int, int, int]]:
    assert (part.error_code, part.error_message) == (0, None)
    return [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in part.active_producers
    ]


@on_uvloop
async def test_producers_and_their_open_transactions_are_listed() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        assert rows((await described(client, topic, 1))[1]) == []
        write = writer(broker, topic)
        await write.append(1, [b"a", b"b"])
        await write.append(2, [b"c"], is_transactional=False, timestamp_ms=NOW_MS + 5)
        await write.append(1, [b"d"])
        one, two = (1, 0, 2, NOW_MS, -1, 0), (2, 0, 0, NOW_MS + 5, -1, -1)
        assert rows((await described(client, topic, 0))[0]) == [two, one]
        await write.abort(1)
        await write.append(1, [b"e"])
        assert rows((await described(client, topic, 0))[0]) == [two, (1, 0, 3, NOW_MS, -1, 5)]
        await write.commit(1)
        assert rows((await described(client, topic, 0))[0])[1][-1] == -1


@on_uvloop
async def test_a_log_that_is_not_open_yet_is_opened() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        assert broker.partition(topic).log is None
        assert rows((await described(client, topic, 0))[0]) == []


@on_uvloop
async def test_partitions_that_are_not_led_here_are_refused() -> None:
    async with pair() as both:
        asked = await described(both.consumer, TOPIC, both.index, 7, both.index)
        assert [part.error_code for part in asked.values()] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        unknown = (await described(both.consumer, "unknown", 0))[0]
        assert (unknown.error_code, unknown.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@on_uvloop
async def test_a_replaced_leader_refuses() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await writer(broker, topic).append(1, [b"a"])
        await lead_elsewhere(broker.metadata, topic, objects=broker.objects.inner)
        async with asyncio.timeout(PATIENCE_SEC):
            part = (await described(client, topic, 0))[0]
            while part.error_code == ErrorCode.NONE:  # Until it hears of it.
                part = (await described(client, topic, 0))[0]
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_producers, "MOST_PRODUCERS", 3)
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=3)
        for index in range(3):
            write = writer(broker, topic, index)
            for producer_id in range(2):
                await write.append(producer_id, [b"x"])
        parts = await described(client, topic, 0, 1, 2)
        codes = sorted((part.error_code, len(part.active_producers)) for part in parts.values())
        assert codes == [(0, 2), (ErrorCode.INVALID_REQUEST, 0), (ErrorCode.INVALID_REQUEST, 0)]
