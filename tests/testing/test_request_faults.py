"""Faults that a test orders: which requests they hit, and what the wire shows of them."""

import asyncio
import gc
from collections.abc import Callable

import pytest
from kafka.protocol.admin import CreateTopicsResponse
from kafka.protocol.consumer import FetchResponse, HeartbeatRequest, HeartbeatResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.protocol.error_codes import ErrorCode
from kafscale.testing.request_faults import RequestFaults
from tests.support import wire
from tests.support.in_process_broker import Client, ConnectionEndedError, InProcessBroker, in_process_broker
from tests.support.topics import create_topics_request
from tests.testing.movable import movable, on_movable_loop

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def stored(broker: InProcessBroker, topic: str = "topic", partition: int = 0) -> int:
    """How many records the partition has."""
    found = broker.process.serving.logs.partition(topic, partition)
    assert found is not None
    return found.high_watermark


def holds() -> int:
    """How often segments in memory are held, by the cache or by replies."""
    return sum(one._holders for one in gc.get_objects() if type(one) is CachedSegment)


async def heartbeat(client: Client) -> int:
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="nobody")
    return int((await client.call(request, HeartbeatResponse, 3)).error_code)


@on_movable_loop
async def test_failed_produce_stores_nothing_and_the_next_does() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        fault = faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        for _ in range(2):
            part = await client.produce("topic", 0, wire.batch([b"x"]))
            assert (part.error_code, part.base_offset) == (NOT_LEADER, -1)
        assert await stored(broker) == 0
        assert (await client.produce("topic", 0, wire.batch([b"x"]))).error_code == 0
        assert fault.hits == 2
        assert faults.rules == ()


@on_movable_loop
async def test_failure_of_one_partition_leaves_the_others() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic(partitions=3)
        batch = wire.batch([b"x"])
        with faults.fail("Produce", NOT_LEADER, topic="topic", partition=1) as fault:
            await client.send_produce("topic", {0: batch, 2: batch})
            assert {part.error_code for part in (await client.receive_produce())[1].values()} == {0}
            assert fault.hits == 0
            await client.send_produce("topic", {0: batch, 1: batch, 2: batch})
            _, parts = await client.receive_produce()
        assert {index: part.error_code for index, part in parts.items()} == {0: 0, 1: NOT_LEADER, 2: 0}
        assert parts[2].base_offset == 1
        assert [await stored(broker, partition=index) for index in range(3)] == [2, 0, 2]
        with faults.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="topic", partition=2):
            parts = await client.fetch("topic", {0: 0, 2: 0})
        assert parts[2].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.records_in(parts[0].records) == [(0, b"x"), (1, b"x")]


@on_movable_loop
async def test_failed_create_topics_creates_nothing() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        faults.fail("CreateTopics", "POLICY_VIOLATION")
        reply = await client.call(create_topics_request("new", 1, None), CreateTopicsResponse, 7)
        assert reply.topics[0].error_code == ErrorCode.POLICY_VIOLATION
        assert reply.topics[0].error_message == "ordered by a test"
        assert broker.process.serving.view.topic("new") is None


@on_movable_loop
async def test_failed_metadata_still_shows_the_brokers() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        await broker.create_topic("other")
        faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="topic")
        reply = await client.call(MetadataRequest(topics=None), MetadataResponse, 9)
        assert len(reply.brokers) == 1
        assert {one.name: one.error_code for one in reply.topics} == {"topic": 5, "other": 0}
        asked = MetadataRequest.MetadataRequestTopic(name="not-there")
        faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
        request = MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
        reply = await client.call(request, MetadataResponse, 9)
        assert [one.error_code for one in reply.topics] == [ErrorCode.LEADER_NOT_AVAILABLE]
        assert broker.process.serving.view.topic("not-there") is None


@on_movable_loop
async def test_failure_until_removed_counts_its_hits() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        with faults.fail("Heartbeat", "REBALANCE_IN_PROGRESS", times=None) as fault:
            assert [await heartbeat(client) for _ in range(3)] == [27, 27, 27]
        assert await heartbeat(client) == ErrorCode.UNKNOWN_MEMBER_ID
        assert fault.hits == 3


@on_movable_loop
async def test_late_answer_keeps_its_place_and_others_do_not_wait() -> None:
    faults = RequestFaults()
    async with (
        in_process_broker(faults=faults, clocks=movable().clocks) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        await broker.create_topic()
        fault = faults.delay("Produce", 60)
        first = await client.send_produce("topic", {0: wire.batch([b"late"])})
        second = await client.send_produce("topic", {0: wire.batch([b"behind it"])})
        assert (await other.produce("topic", 0, wire.batch([b"not late"]))).error_code == 0
        receiving = asyncio.create_task(client.receive_produce())
        await movable().advance_async(59)
        assert await stored(broker) == 3
        assert fault.hits == 1
        assert not receiving.done()
        await movable().advance_async(2)
        assert (await receiving)[0] == first
        assert (await client.receive_produce())[0] == second


@on_movable_loop
async def test_dropped_connection_before_the_request_stores_nothing() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker:
        await broker.create_topic()
        faults.drop_connection("Produce")
        async with broker.connect() as client, broker.connect() as other:
            with pytest.raises(ConnectionEndedError):
                await client.produce("topic", 0, wire.batch([b"x"]))
            assert (await other.produce("topic", 0, wire.batch([b"y"]))).base_offset == 0


@on_movable_loop
async def test_dropped_connection_after_the_request_has_stored_it() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker:
        await broker.create_topic()
        fault = faults.drop_connection(after=True)
        async with broker.connect() as client, broker.connect() as other:
            with pytest.raises(ConnectionEndedError):
                await client.produce("topic", 0, wire.batch([b"x"]))
            assert (await other.produce("topic", 0, wire.batch([b"y"]))).base_offset == 1
        assert fault.hits == 1


@on_movable_loop
async def test_dropped_fetch_gives_its_memory_back() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        await client.produce("topic", 0, wire.batch([bytes(100_000)]))
        await broker.seal("topic")
        broker.forget_cached("topic")
        await client.fetch("topic", {0: 0})
        held = holds()
        assert held > 0
        faults.drop_connection("Fetch", after=True)
        with pytest.raises(ConnectionEndedError):
            await client.fetch("topic", {0: 0})
        faults.delay("Fetch", 60)
        async with broker.connect() as leaving:
            await leaving.send_fetch("topic", {0: 0})
            await movable().advance_async(0)
        await movable().advance_async(61)
        assert holds() == held
        async with broker.connect() as other:
            assert wire.records_in((await other.fetch("topic", {0: 0}))[0].records) == [(0, bytes(100_000))]


@on_movable_loop
async def test_failed_produce_without_acks_ends_the_connection() -> None:
    """As in Kafka: such a producer learns of an error by its connection's end."""
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        faults.fail("Produce", NOT_LEADER)
        await client.send_produce("topic", {0: wire.batch([b"x"])}, acks=0)
        assert await client.closed_by_peer()
        assert await stored(broker) == 0


@on_movable_loop
async def test_fetch_session_error_is_the_whole_answers() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        faults.fail("Fetch", "FETCH_SESSION_ID_NOT_FOUND")
        reply = await client.call(wire.fetch_request("topic", {0: 0}), FetchResponse, wire.FETCH_VERSION)
        assert (reply.error_code, list(reply.responses)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@on_movable_loop
async def test_fault_of_an_old_produce_version_is_read_by_it() -> None:
    faults = RequestFaults()
    async with in_process_broker(faults=faults) as broker, broker.connect() as client:
        await broker.create_topic()
        faults.fail("Produce", NOT_LEADER)
        sent = await client.send(wire.produce_request("topic", {0: wire.batch([b"x"])}), 3)
        reply = await client.receive(ProduceResponse, 3)
        assert reply.header.correlation_id == sent
        assert reply.responses[0].partition_responses[0].error_code == NOT_LEADER


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (
            lambda one: one.fail("Prodce", "UNKNOWN_TOPIC_ID"),
            "api='Prodce' is not an API.*did you mean Produce",
        ),
        (
            lambda one: one.fail("StreamsGroupHeartbeat", "UNKNOWN_TOPIC_ID"),
            "api='StreamsGroupHeartbeat' is not an API",
        ),
        (lambda one: one.fail("#", "UNKNOWN_TOPIC_ID"), "legal are AddOffsetsToTxn, .*UpdateFeatures"),
        (lambda one: one.fail("AlterReplicaLogDirs", "UNKNOWN_TOPIC_ID"), "cannot be failed; legal are"),
        (
            lambda one: one.fail("Produce", "NOT_LEADER"),
            "error='NOT_LEADER' is not one.*NOT_LEADER_OR_FOLLOWER",
        ),
        (lambda one: one.fail("Produce", "NONE"), "error='NONE' is not one of Kafka's errors"),
        (lambda one: one.fail("Heartbeat", NOT_LEADER, topic="t"), "Heartbeat has no error for each topic"),
        (lambda one: one.fail("Metadata", NOT_LEADER, topic="t", partition=0), "no error for each partition"),
        (
            lambda one: one.fail("Produce", NOT_LEADER, partition=0),
            "partition=0 is not legal without a topic",
        ),
        (lambda one: one.fail("Produce", NOT_LEADER, times=0), "times=0 is not legal: at least 1"),
        (lambda one: one.delay("Fetch", -1), "seconds=-1 is not legal"),
        (lambda one: one.delay("Fetch", float("nan")), "seconds=nan is not legal"),
        (lambda one: one.drop_connection("Fech"), "api='Fech' is not an API.*did you mean Fetch"),
    ],
)
def test_illegal_order_says_what_is_legal(order: Callable[[RequestFaults], object], problem: str) -> None:
    faults = RequestFaults()
    with pytest.raises(ValueError, match=problem):
        order(faults)
    assert faults.rules == ()


def test_clear_removes_all_orders() -> None:
    faults = RequestFaults()
    fault = faults.fail("Produce", NOT_LEADER, times=None)
    faults.delay(None, 1)
    faults.clear()
    assert faults.rules == ()
    assert not fault.take()
    with pytest.raises(TimeoutError, match="a fault of Produce was hit 0 times after 0 s, not 1"):
        fault.wait_for_hits(timeout_sec=0)
