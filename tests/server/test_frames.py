"""Frames: cut and joined in any way, too long, too short, and never completed."""

import asyncio
import struct
from collections.abc import Sequence

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from kafscale.ops.metrics import FrameRefusal
from kafscale.server import listener
from kafscale.server.frames import SMALL_FRAME_BYTES, FrameInProgress
from tests.support import wire
from tests.support.driven_connection import DrivenConnection
from tests.support.hostile_groups import join_group
from tests.support.in_process_broker import Client, in_process_broker, until
from tests.support.nightly import by_day
from tests.support.on_uvloop import on_uvloop

TOPIC = "topic"
MIB = 1024 * 1024


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def list_offsets() -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic(name=TOPIC, partitions=[partition])]
    )


def requests(client: Client, sizes: Sequence[int] = (10, 20_000, 400_000)) -> list[bytes]:
    """Frames of several APIs. What they are answered does not depend on the time at which they are read."""
    stream = [client.frame(api_versions(), 3)]
    for size in sizes:
        batch = wire.batch([b"x" * size, b"y"], timestamp=1)
        stream.append(client.frame(wire.produce_request(TOPIC, {0: batch}), 9))
        stream.append(client.frame(wire.produce_request(TOPIC, {0: batch}, acks=0), 3))
        stream.append(client.frame(wire.produce_request(TOPIC, {5: batch}), 7))
    stream.append(client.frame(list_offsets(), 5))
    stream.append(client.frame(wire.fetch_request(TOPIC, {0: 0}, max_wait_ms=0), 11))
    stream.append(client.frame(api_versions(), 0))
    return stream


UNANSWERED = 3  # one for each size: acks=0


async def replies_to(stream: bytes, cuts: Sequence[int], count: int) -> list[bytes]:
    """The replies of a new broker when the stream arrives in these pieces."""
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC)
        driven = DrivenConnection(broker)
        begin = 0
        for end in (*sorted(set(cuts)), len(stream)):
            await driven.feed_all(stream[begin:end])
            begin = end
        frames = await driven.next_frames(count)
        await driven.end()
        assert broker.budget.used_bytes == 0
        return frames


def a_client() -> Client:
    return Client(None)  # type: ignore[arg-type]  # only its frames are wanted


STREAM = requests(a_client())
WHOLE = b"".join(STREAM)


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    """The replies when each request arrives alone."""
    ends = [sum(map(len, STREAM[: number + 1])) for number in range(len(STREAM))]
    return uvloop.run(replies_to(WHOLE, ends, len(STREAM) - UNANSWERED))


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(0, len(WHOLE)), max_size=30))
def test_the_replies_do_not_depend_on_how_the_stream_is_cut(expected: list[bytes], cuts: list[int]) -> None:
    assert uvloop.run(replies_to(WHOLE, cuts, len(expected))) == expected


@on_uvloop
async def test_a_stream_may_be_cut_at_every_byte() -> None:
    stream = requests(a_client(), sizes=(10,))
    data = b"".join(stream)
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC)
        for cut in range(1, len(data), by_day(3, by_night=1)):
            driven = DrivenConnection(broker)
            await driven.feed_all(data[:cut])
            await driven.feed_all(data[cut:])
            correlation_ids = [struct.unpack_from(">i", frame)[0] for frame in await driven.next_frames(6)]
            assert correlation_ids == [1, 2, 4, 5, 6, 7]
            await driven.end()


@on_uvloop
async def test_a_stream_may_come_byte_by_byte() -> None:
    stream = requests(a_client(), sizes=(10,))
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC)
        driven = DrivenConnection(broker)
        for byte in b"".join(stream):
            await driven.feed_all(bytes((byte,)))
        assert len(await driven.next_frames(6)) == 6
        await driven.end()


@on_uvloop
async def test_large_frames_arrive_whole_over_a_socket() -> None:
    size = 3 * listener.RECEIVE_BUFFER_BYTES + 17
    async with in_process_broker(max_message_bytes=2 * size) as broker:
        topic = await broker.create_topic()
        values = [bytes([number]) * size for number in range(5)]
        async with broker.connect() as client:
            for value in values:
                await client.send_produce(topic, {0: wire.batch([value])})
            for _ in values:
                _, parts = await client.receive_produce()
                assert parts[0].error_code == 0
            fetched = await client.fetch(topic, {0: 0}, partition_max_bytes=10 * size)
            assert [value for _, value in wire.records_in(fetched[0].records)] == values
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


# --- lengths


@pytest.mark.parametrize(
    ("length", "reason"),
    [
        (-1, FrameRefusal.BAD_LENGTH),
        (-(2**31), FrameRefusal.BAD_LENGTH),
        (0, FrameRefusal.BAD_LENGTH),
        (7, FrameRefusal.BAD_LENGTH),
        (1024 * 1024 + 1, FrameRefusal.TOO_LARGE),
        (struct.unpack(">i", b"GET ")[0], FrameRefusal.TOO_LARGE),
        (2**31 - 1, FrameRefusal.TOO_LARGE),
    ],
)
@on_uvloop
async def test_an_illegal_length_ends_the_connection_without_memory(
    length: int, reason: FrameRefusal
) -> None:
    async with in_process_broker(frame_max_bytes=1024 * 1024) as broker:
        async with broker.connect() as client:
            await client.send_bytes(struct.pack(">i", length) + b"/ HTTP/1.1\r\n")
            assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[reason] == 1
        assert (broker.budget.used_bytes, broker.pool.spare_bytes) == (0, 0)


@on_uvloop
async def test_a_frame_of_exactly_the_limit_is_read() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
    async with (
        in_process_broker(metadata=broker.metadata, frame_max_bytes=100_000) as broker,
        broker.connect() as client,
    ):

        def frame(value_bytes: int) -> bytes:
            return client.frame(wire.produce_request(topic, {0: wire.batch([b"x" * value_bytes])}), 9)

        exact = frame(50_000 + 100_004 - len(frame(50_000)))
        assert len(exact) == 100_004
        await client.send_bytes(exact)
        assert (await client.receive_produce())[1][0].error_code == 0
        await client.send_bytes(struct.pack(">i", 100_001))
        assert await client.closed_by_peer()


@on_uvloop
async def test_a_refused_frame_ends_the_connection_after_earlier_ones() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(client.frame(api_versions(), 0) + struct.pack(">i", -5))
        await client.receive_frame()
        assert await client.closed_by_peer()


# --- frames that do not come


@pytest.mark.parametrize("length", [SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, 100 * MIB])
@on_uvloop
async def test_a_frame_is_charged_for_what_has_come_of_it(length: int) -> None:
    async with in_process_broker() as broker:
        async with broker.connect() as client:
            await client.send_bytes(struct.pack(">i", length) + bytes(16))
            await until(lambda: broker.budget.used_bytes == 16, "the first bytes are charged")
            await client.send_bytes(bytes(5000))
            await until(lambda: broker.budget.used_bytes == 5016, "the next bytes are charged")
        await until(lambda: broker.connection_count == 0, "the connection is gone")
        assert (broker.budget.used_bytes, broker.budget.frame_bytes) == (0, 0)


@pytest.mark.parametrize("length", [SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1])
@on_uvloop
async def test_a_frame_that_makes_no_progress_ends_its_connection(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 0.05)
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(struct.pack(">i", length) + bytes(100))
        await until(lambda: broker.budget.used_bytes == 100, "the frame has begun")
        assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[FrameRefusal.TOO_SLOW] == 1
        await until(lambda: broker.budget.used_bytes == 0, "the memory is given back")


@on_uvloop
async def test_a_frame_that_progresses_too_slowly_ends_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 0.05)
    monkeypatch.setattr(FrameInProgress, "PROGRESS_BYTES", 1)
    monkeypatch.setattr(FrameInProgress, "FIRST_SEC", 0.2)
    monkeypatch.setattr(FrameInProgress, "BYTES_PER_SEC", 1 << 30)
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(struct.pack(">i", MIB) + bytes(100))
        while not broker.metrics.frames_refused[FrameRefusal.TOO_SLOW]:
            client.send_some(b"x")
            await asyncio.sleep(0.001)
        await until(lambda: broker.budget.used_bytes == 0, "the memory is given back")


@on_uvloop
async def test_a_frame_of_a_client_that_reads_nothing_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 0.05)
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), a_client()
        produce = client.frame(wire.produce_request(topic, {0: wire.batch([bytes(MIB // 2)])}), 9)
        driven.transport.room_bytes = 10
        driven.feed(client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9) + produce[:1000])
        await until(lambda: driven.transport.get_write_buffer_size() > 0, "the reply is not taken")
        driven.feed(produce[1000:])
        await until(lambda: driven.transport.closed, "the connection is ended")
        await until(lambda: broker.budget.used_bytes == 0, "the memory is given back")


@on_uvloop
async def test_a_whole_frame_may_wait_beyond_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 0.05)
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven = DrivenConnection(broker)
        client = a_client()
        await driven.feed_all(client.frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=400), 11))
        produce = client.frame(wire.produce_request(topic, {0: wire.batch([b"x" * 10_000])}), 9)
        driven.feed(produce[:5000])  # a small frame in memory of its own
        driven.feed(produce[5000:])
        assert len(await driven.next_frames(2)) == 2
        await driven.end()


@pytest.mark.parametrize("sent", [0, 3, 4, 5, 100, 70_000])
@on_uvloop
async def test_a_client_that_leaves_mid_frame_leaves_no_memory(sent: int) -> None:
    async with in_process_broker() as broker:
        async with broker.connect() as client:
            await client.send_bytes((struct.pack(">i", 200_000) + bytes(80_000))[:sent])
            if sent > 5:
                await until(lambda: broker.budget.used_bytes == sent - 4, "what has come is charged")
        await until(lambda: broker.connection_count == 0, "the connection is gone")
        assert broker.budget.used_bytes == 0


@on_uvloop
async def test_whole_frame_behind_its_own_fetch_starves_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small frames of one address fill its share, and the lane's head waits for a fetch that lasts an hour."""
    monkeypatch.setattr(FrameInProgress, "PROGRESS_SEC", 0.05)
    async with in_process_broker(buffer_bytes=MIB) as broker:
        topic = await broker.create_topic()
        produce = a_client().frame(wire.produce_request(topic, {0: wire.batch([b"x" * 50_000])}), 9)
        hoarders = [DrivenConnection(broker) for _ in range(3)]
        for hoarder in hoarders:
            fetch = a_client().frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=3_600_000), 11)
            hoarder.feed(fetch)
            hoarder.feed(produce[:1000])
            hoarder.feed(produce[1000:])
        victim = DrivenConnection(broker)
        victim.feed(produce[:1000])
        await victim.feed_all(produce[1000:])
        assert len(await victim.next_frames(1)) == 1
        for driven in (*hoarders, victim):
            await driven.end()
        await until(lambda: broker.budget.used_bytes == 0, "the memory is given back")


@on_uvloop
async def test_join_that_waits_for_others_has_released_its_frame() -> None:
    async with in_process_broker(group_initial_rebalance_delay_ms=3_600_000) as broker:
        totals = broker.process.serving.groups._shards.totals
        for group, size in (("small", 30_000), ("large", MIB)):
            driven, members = DrivenConnection(broker), totals.members
            join = join_group(group, metadata=bytes(size))
            driven.feed(join[:1000])
            await driven.feed_all(join[1000:])
            await until(lambda: totals.members > members, "the member waits")  # noqa: B023
            await until(lambda: broker.budget.used_bytes == 0, "the frame's memory is given back")
            await driven.end()
