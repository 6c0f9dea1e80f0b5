"""Several requests of one client at a time: what runs together, what waits, and in which order replies leave."""

import asyncio
import struct
from collections.abc import Iterable

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.formats.journal_entry import EntryHead, decode_cell
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.types import Buffer
from kafscale.server import connection
from tests.support import wire
from tests.support.driven_connection import DrivenConnection
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_SEC

FIRST_ENTRY = f"*/{0:020d}.entry"
NO_PARTITION = 999
MANY_UNKNOWN = dict.fromkeys(range(1000, 16_000), b"x")


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def correlation_ids(frames: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", frame)[0] for frame in frames]


def frames_only() -> Client:
    """A client of which only the frames are wanted."""
    return Client(None)  # type: ignore[arg-type]


async def later_entries_have(broker: InProcessBroker, batches: int) -> None:
    """Until entries behind the first are stored with so many batches: none of them is committed."""
    async with asyncio.timeout(PATIENCE_SEC):
        while await stored_batches(broker) < batches:  # noqa: ASYNC110 - a look at a store
            await asyncio.sleep(0.001)


async def stored_batches(broker: InProcessBroker) -> int:
    heads = [decode_cell(key, await broker.objects.get(key)) for key in await broker.objects.keys("*.entry")]
    return sum(row.record_count for head in heads if isinstance(head, EntryHead) for row in head.slices)


@on_uvloop
async def test_produces_that_flush_together_are_answered_in_order() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic(partitions=3)
        async with broker.connect() as client:
            with broker.objects.hold("put_if_absent", FIRST_ENTRY) as hold:
                sent = [await client.send_produce(topic, {0: wire.batch([b"x"])})]
                await hold.reached()
                sent += [
                    await client.send_produce(topic, {partition: wire.batch([b"x"])})
                    for partition in (1, 2, 1)
                ]
                await later_entries_have(broker, 3)
            replies = [await client.receive_produce() for _ in sent]
            assert [correlation_id for correlation_id, _ in replies] == sent
            assert [(*parts, *(part.base_offset for part in parts.values())) for _, parts in replies] == [
                (0, 0),
                (1, 0),
                (2, 0),
                (1, 1),
            ]


@on_uvloop
async def test_no_reply_overtakes_an_earlier_one() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic(partitions=2)
        driven, client = DrivenConnection(broker), frames_only()
        with broker.objects.hold("put_if_absent", FIRST_ENTRY) as hold:
            driven.feed(client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9))
            await hold.reached()
            for partition in (1, NO_PARTITION, 1):
                driven.feed(client.frame(wire.produce_request(topic, {partition: wire.batch([b"x"])}), 9))
            await later_entries_have(broker, 2)
            replies = driven.connection._replies
            await until(lambda: replies.ready_bytes, "the one that is refused is ready")
            assert driven.frames() == []
        assert correlation_ids(await driven.next_frames(4)) == [1, 2, 3, 4]
        await driven.end()


@on_uvloop
async def test_what_arrives_during_a_flush_fills_one_entry() -> None:
    async with in_process_broker(flushes_in_flight=1) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                await client.send_produce(topic, {0: wire.batch([b"first"])})
                await hold.reached()
                for number in range(20):
                    await client.send_produce(topic, {0: wire.batch([b"%d" % number] * 3)})
                log = broker.partition(topic).log
                await until(lambda: log and log.waiting and log.waiting.record_count == 60, "all has come")
            replies = [await client.receive_produce() for _ in range(21)]
            assert [parts[0].base_offset for _, parts in replies] == [0, *range(1, 61, 3)]
            assert len(await broker.objects.keys("*.entry")) == 2
            assert broker.objects.most_concurrent_puts == 1


@on_uvloop
async def test_the_replies_of_one_flush_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(flushes_in_flight=1) as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        frame = client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9)
        writes = 0
        write = driven.transport.writelines

        def counted(buffers: Iterable[Buffer]) -> None:
            nonlocal writes
            writes += 1
            write(buffers)

        monkeypatch.setattr(driven.transport, "writelines", counted)
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            driven.feed(frame)
            await hold.reached()
            driven.feed(frame * 20)
        assert len(await driven.next_frames(21)) == 21
        assert writes == 2
        await driven.end()


@on_uvloop
async def test_a_ready_reply_leaves_before_its_connection_ends() -> None:
    """Replies to Produce leave a moment after they are ready: what ends the connection meanwhile comes later."""
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        refused = client.frame(wire.produce_request(topic, {7: wire.batch([b"x"])}), 9)
        no_version = struct.pack(">ihhi", 8, ApiKey.PRODUCE, 99, 2)
        driven.feed(refused + no_version)
        assert len(await driven.next_frames(1)) == 1
        await until(lambda: driven.transport.closed, "the connection is ended")


@on_uvloop
async def test_another_request_waits_for_earlier_produces() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            for _ in range(2):
                driven.feed(client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9))
            unread = driven.feed(
                client.frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=0), 11)
                + client.frame(wire.produce_request(topic, {0: wire.batch([b"y"])}), 9)
            )
            await hold.reached()
            assert driven.frames() == []
        await driven.feed_all(unread)
        frames = await driven.next_frames(4)
        assert correlation_ids(frames) == [1, 2, 3, 4]
        # The fetch saw what the produces before it stored, and not the one behind it.
        fetched = FetchResponse.decode(frames[2], version=11, header=True)
        assert wire.records_in(fetched.responses[0].partitions[0].records) == [(0, b"x"), (1, b"x")]
        produced = ProduceResponse.decode(frames[3], version=9, header=True)
        assert produced.responses[0].partition_responses[0].base_offset == 2
        await driven.end()


@on_uvloop
async def test_what_follows_a_waiting_fetch_waits_with_it() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        driven.feed(client.frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=60_000), 11))
        unread = driven.feed(
            client.frame(wire.produce_request(topic, {0: wire.batch([b"not yet"])}), 9)
            + client.frame(api_versions(), 0)
        )
        assert (unread, driven.transport.reading) == (b"", False)
        async with broker.connect() as other:
            await other.produce(topic, 0, wire.batch([b"wakes"]))
        frames = await driven.next_frames(3)
        assert correlation_ids(frames) == [1, 2, 3]
        fetched = FetchResponse.decode(frames[0], version=11, header=True)
        assert wire.records_in(fetched.responses[0].partitions[0].records) == [(0, b"wakes")]
        await driven.end()


@on_uvloop
async def test_acks_0_takes_its_place_and_gets_no_reply() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic(partitions=2)
        async with broker.connect() as client:
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                first = await client.send_produce(topic, {0: wire.batch([b"a"])})
                await client.send_produce(topic, {1: wire.batch([b"b"])}, acks=0)
                third = await client.send_produce(topic, {1: wire.batch([b"c"])})
                await client.send_produce(topic, {0: wire.batch([b"d"])}, acks=0)
                fifth = await client.send(api_versions(), 0)
                await hold.reached()
            assert (await client.receive_produce())[0] == first
            correlation_id, parts = await client.receive_produce()
            assert (correlation_id, parts[1].base_offset) == (third, 1)
            assert (await client.receive(ApiVersionsResponse, 0)).header.correlation_id == fifth
            # Nothing waits for a record that was not acknowledged, but it is stored like any other.
            await until(lambda: broker.partition(topic, 0).high_watermark == 2, "the last is published")
            fetched = await client.fetch(topic, {0: 0, 1: 0})
            assert wire.records_in(fetched[0].records) == [(0, b"a"), (1, b"d")]
            assert wire.records_in(fetched[1].records) == [(0, b"b"), (1, b"c")]


@on_uvloop
async def test_a_refused_request_with_acks_0_ends_the_connection() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            await client.send_produce(topic, {0: wire.batch([b"stored"]), 7: wire.batch([b"lost"])}, acks=0)
            assert await client.closed_by_peer()
        async with broker.connect() as client:
            assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"stored")]


@on_uvloop
async def test_more_requests_than_may_wait_are_all_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_UNANSWERED", 200)
    count = 500
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        stream = b"".join(
            client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9) for _ in range(count)
        )
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            rest = driven.feed(stream)
            await hold.reached()
            await until(lambda: not driven.transport.reading, "the gate is closed")
            assert len(driven.connection._replies) == 200
        await driven.feed_all(rest)
        assert correlation_ids(await driven.next_frames(count)) == list(range(1, count + 1))
        assert broker.partition(topic).high_watermark == count
        await driven.end()


@on_uvloop
async def test_a_client_with_many_requests_lets_others_have_their_turn() -> None:
    async with in_process_broker() as broker:
        driven, other, client = DrivenConnection(broker), DrivenConnection(broker), frames_only()
        stream = b"".join(client.frame(api_versions(), 0) for _ in range(1000))
        rest = driven.feed(stream)
        first = driven.frames()
        assert 0 < len(first) <= connection.MAX_REQUESTS_IN_A_ROW
        other.feed(client.frame(api_versions(), 0))
        assert len(other.frames()) == 1
        await driven.feed_all(rest)
        assert len(await driven.next_frames(1000 - len(first))) == 1000 - len(first)
        await driven.end()
        await other.end()


@on_uvloop
async def test_replies_that_wait_for_an_earlier_one_do_not_pile_up() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        refused = wire.produce_request(topic, MANY_UNKNOWN)
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            driven.feed(client.frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9))
            await hold.reached()
            frame = client.frame(refused, 9)
            unread = driven.feed(frame * 3)
            replies = driven.connection._replies
            await until(lambda: replies.ready_bytes > connection.MAX_READY_BYTES, "one reply waits")
            assert len(replies) == 2
            assert unread
        await driven.feed_all(unread)
        assert correlation_ids(await driven.next_frames(4)) == [1, 2, 2, 2]
        assert replies.ready_bytes == 0
        await driven.end()


@on_uvloop
async def test_appended_records_of_a_client_that_leaves_are_published() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            async with broker.connect() as client:
                await client.send_produce(topic, {0: wire.batch([b"a"])})
                await hold.reached()
                await client.send_produce(topic, {0: wire.batch([b"b"])})
                await until(lambda: broker.budget.used_bytes > 600, "both have come")
            await until(lambda: broker.connection_count == 0, "the client is gone")
        async with broker.connect() as client:
            await until(lambda: broker.partition(topic).high_watermark == 2, "both are published")
            fetched = await client.fetch(topic, {0: 0})
            assert wire.records_in(fetched[0].records) == [(0, b"a"), (1, b"b")]
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")
