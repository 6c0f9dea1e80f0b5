"""Fetch with `read_committed`: what is below the last stable offset, and the aborted transactions in it (KIP-98)."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from kafscale.formats.partition_transactions import BatchKind
from kafscale.protocol.compression import Codec
from tests.handlers.test_fetch import LONG_MS, batches_in, id_of, waits
from tests.handlers.test_fetch_elsewhere import TOPIC, pair
from tests.handlers.test_offsets import delete_before
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.log_transactions import CommittedConsumer, Writer, committed_request, consume, writer
from tests.support.on_uvloop import on_uvloop

PLAIN, A, B = -1, 1, 2


def aborted_in(part: Any) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in part.aborted_transactions]


async def two_transactions(broker: InProcessBroker, topic: str) -> Writer:
    """A's transaction from 0, which is aborted at 5; B's from 2, which is open; the log ends at 6."""
    write = writer(broker, topic)
    assert await write.append(A, [b"a0", b"a1"]) == 0
    assert await write.append(B, [b"b0"]) == 2
    assert await write.append(A, [b"a2", b"a3"]) == 3
    assert await write.abort(A) == 5
    return write


# --- what is answered


@pytest.mark.parametrize("version", range(4, 14))
@on_uvloop
async def test_every_version_ends_at_the_last_stable_offset(version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await two_transactions(broker, topic)
        request = committed_request(topic, {0: 0})
        request.topics[0].topic_id = await id_of(client, topic)
        (part,) = (await client.call(request, FetchResponse, version)).responses[0].partitions
        assert (part.high_watermark, part.last_stable_offset) == (6, 2)
        assert wire.records_in(part.records) == [(0, b"a0"), (1, b"a1")]
        assert aborted_in(part) == [(A, 0)]


@pytest.mark.parametrize("is_cold", [False, True])
@on_uvloop
async def test_a_segment_with_the_last_stable_offset_is_cut(is_cold: bool) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await two_transactions(broker, topic)
        await broker.seal(topic)
        assert len(broker.partition(topic).record.segments) == 1
        if is_cold:
            broker.forget_cached(topic)
        consumer = CommittedConsumer()
        part = await consume(client, topic, 0, consumer)
        assert ([offset for offset, _ in batches_in(part.records)], aborted_in(part)) == ([0], [(A, 0)])
        assert consumer.position == 2


@on_uvloop
async def test_read_uncommitted_gets_all_and_the_same_offsets() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await two_transactions(broker, topic)
        part = (await client.fetch(topic, {0: 0}))[0]
        assert (part.high_watermark, part.last_stable_offset) == (6, 2)
        assert [offset for offset, _ in batches_in(part.records)] == [0, 2, 3, 5]
        assert part.aborted_transactions is None


@on_uvloop
async def test_an_answer_without_records_names_no_transactions() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await two_transactions(broker, topic)
        for offset in (2, 4, 6):
            request = committed_request(topic, {0: offset}, max_wait_ms=0)
            (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
            assert (part.error_code, bytes(part.records or b""), part.aborted_transactions) == (0, b"", [])
            assert (part.high_watermark, part.last_stable_offset) == (6, 2)


@on_uvloop
async def test_only_transactions_of_the_answered_range_are_named() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        for producer_id in (1, 2, 3):
            await write.append(producer_id, [bytes(500)])
            await write.abort(producer_id)
        await write.append(PLAIN, [b"end"], is_transactional=False)
        found = []
        for offset in range(7):
            request = committed_request(topic, {0: offset}, partition_max_bytes=1)
            (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
            found.append(aborted_in(part))
        assert found == [[(1, 0)], [(1, 0)], [(2, 2)], [(2, 2)], [(3, 4)], [(3, 4)], []]
        request = committed_request(topic, {0: 1}, partition_max_bytes=800)
        (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
        assert [offset for offset, _ in batches_in(part.records)] == [1, 2, 3]
        assert aborted_in(part) == [(1, 0), (2, 2)]


@on_uvloop
async def test_a_large_first_batch_is_sent_once_it_is_stable() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        await write.append(A, [bytes(5000)])
        request = committed_request(topic, {0: 0}, max_wait_ms=0, max_bytes=10, partition_max_bytes=10)
        (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
        assert bytes(part.records or b"") == b""
        await write.commit(A)
        (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
        assert [offset for offset, _ in batches_in(part.records)] == [0]


@on_uvloop
async def test_a_log_start_in_an_open_transaction_is_stable() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = await two_transactions(broker, topic)
        assert await delete_before(client, topic, 4) == (0, 4)
        request = committed_request(topic, {0: 4}, max_wait_ms=0)
        (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
        assert (part.last_stable_offset, part.log_start_offset, bytes(part.records or b"")) == (4, 4, b"")
        await write.commit(B)
        consumer = CommittedConsumer(4)
        part = await consume(client, topic, 0, consumer)
        assert (consumer.records, consumer.position) == ([], 7)
        assert aborted_in(part) == [(A, 0)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@on_uvloop
async def test_clients_without_codecs_get_committed_records_plain(codec: Codec) -> None:
    async with in_process_broker(codec_clients=()) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        await write.append(A, [b"aborted" * 50], codec=codec)
        await write.append(B, [b"committed" * 50], codec=codec)
        await write.abort(A)
        await write.commit(B)
        consumer = CommittedConsumer()
        part = await consume(client, topic, 0, consumer)
        assert {batch.compression_type for batch in wire.batches_in(part.records)} == {0}
        assert (consumer.records, consumer.position) == ([(1, b"committed" * 50)], 4)


# --- waiting


@on_uvloop
async def test_a_fetch_waits_until_the_last_stable_offset_moves() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        await write.append(A, [b"a"])
        await client.send(committed_request(topic, {0: 0}, max_wait_ms=LONG_MS), wire.FETCH_VERSION)
        await waits(broker, topic)
        await write.append(A, [bytes(1000)])
        await write.append(PLAIN, [bytes(1000)], is_transactional=False)
        await write.append(B, [b"b"])
        assert broker.partition(topic).has_listeners
        await write.commit(A)
        part = (await client.receive_fetch())[0]
        assert (part.last_stable_offset, part.high_watermark) == (3, 5)
        assert [offset for offset, _ in wire.records_in(part.records)] == [0, 1, 2]


@on_uvloop
async def test_min_bytes_counts_what_is_below_the_last_stable_offset() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        first, second = writer(broker, topic, 0), writer(broker, topic, 1)
        await first.append(A, [bytes(700)])
        await second.append(A, [bytes(700)])
        request = committed_request(topic, {0: 0, 1: 0}, max_wait_ms=LONG_MS, min_bytes=1500)
        await client.send(request, wire.FETCH_VERSION)
        await waits(broker, topic)
        await first.commit(A)
        await first.append(B, [bytes(2000)])
        assert broker.partition(topic).has_listeners
        await second.commit(A)
        parts = await client.receive_fetch()
        assert [len(wire.records_in(parts[index].records)) for index in (0, 1)] == [2, 2]
        assert [len(batches_in(parts[index].records)) for index in (0, 1)] == [2, 2]


@on_uvloop
async def test_a_fetch_above_the_last_stable_offset_waits_for_more() -> None:
    """As of a consumer whose group was read without isolation before."""
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        write = writer(broker, topic)
        for producer_id in (A, B, 3):
            await write.append(producer_id, [b"x"])
        for _ in range(2):  # The second time it is no idle answer that is waited with.
            request = committed_request(topic, {0: 2}, max_wait_ms=5)
            (part,) = (await client.call(request, FetchResponse, wire.FETCH_VERSION)).responses[0].partitions
            assert (part.last_stable_offset, bytes(part.records or b"")) == (0, b"")
        await client.send(committed_request(topic, {0: 2}, max_wait_ms=LONG_MS), wire.FETCH_VERSION)
        await waits(broker, topic)
        await write.commit(A)
        await write.commit(B)
        assert broker.partition(topic).has_listeners
        await write.commit(3)
        part = (await client.receive_fetch())[0]
        assert [offset for offset, _ in batches_in(part.records)] == [2, 3, 4, 5]


@on_uvloop
async def test_a_fetch_at_a_follower_waits_for_the_marker() -> None:
    async with pair() as both:
        write = writer(both.leader, TOPIC, both.index)
        await write.append(A, [b"a"])
        await both.reader_knows(1)
        request = committed_request(TOPIC, {both.index: 0}, max_wait_ms=LONG_MS)
        await both.consumer.send(request, wire.FETCH_VERSION)
        await both.waits(both.reader)
        await write.append(A, [b"more"])
        await both.reader_knows(2)
        await both.waits(both.reader)
        await write.abort(A)
        part = (await both.consumer.receive_fetch())[both.index]
        assert (part.last_stable_offset, aborted_in(part)) == (3, [(A, 0)])
        assert [offset for offset, _ in batches_in(part.records)] == [0, 1, 2]


# --- what a consumer sees

STEPS = st.lists(
    st.tuples(
        st.sampled_from([BatchKind.PLAIN, *[BatchKind.TRANSACTIONAL] * 4, BatchKind.ABORT, BatchKind.COMMIT]),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=40,
)


class Model:
    """The records that a `read_committed` consumer sees, and the last stable offset."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.committed: list[tuple[int, bytes]] = []
        self._opened: dict[int, list[tuple[int, bytes]]] = {}

    @property
    def last_stable_offset(self) -> int:
        return min((records[0][0] for records in self._opened.values()), default=self.end_offset)

    def is_open(self, producer_id: int) -> bool:
        return producer_id in self._opened

    def add(self, producer_id: int, values: list[bytes], *, is_transactional: bool) -> None:
        records = [(self.end_offset + number, value) for number, value in enumerate(values)]
        self.end_offset += len(values)
        if is_transactional:
            self._opened.setdefault(producer_id, []).extend(records)
        else:
            self.committed += records

    def end(self, producer_id: int, *, commits: bool) -> None:
        records = self._opened.pop(producer_id)
        self.committed += records if commits else []
        self.end_offset += 1

    def seen(self, first_offset: int) -> list[tuple[int, bytes]]:
        end = self.last_stable_offset
        return sorted(one for one in self.committed if first_offset <= one[0] < end)


async def carry_out(write: Writer, steps: list[tuple[BatchKind, int, int]], model: Model) -> None:
    for number, (kind, producer_id, count) in enumerate(steps):
        values = [b"%d of %d" % (part, number) + bytes(40 * count) for part in range(count)]
        if kind is BatchKind.PLAIN:
            assert await write.append(PLAIN, values, is_transactional=False) == model.end_offset
            model.add(PLAIN, values, is_transactional=False)
        elif kind is BatchKind.TRANSACTIONAL:
            assert await write.append(producer_id, values) == model.end_offset
            model.add(producer_id, values, is_transactional=True)
        elif model.is_open(producer_id):
            commits = kind is BatchKind.COMMIT
            assert await write.end(producer_id, commits=commits) == model.end_offset
            model.end(producer_id, commits=commits)


@settings(max_examples=12, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32), seals=st.booleans())
@on_uvloop
async def test_a_consumer_sees_exactly_what_is_committed(
    steps: list[tuple[BatchKind, int, int]], seed: int, seals: bool
) -> None:
    """From any offset, with any sizes, at the leader and at a follower, from slices and from segments."""
    chance, model = random.Random(seed), Model()
    async with pair() as both:
        write = writer(both.leader, TOPIC, both.index)
        half = chance.randint(0, len(steps))
        await carry_out(write, steps[:half], model)
        if seals and model.end_offset:
            await both.leader.seal(TOPIC, both.index)
        await carry_out(write, steps[half:], model)
        if seals and model.end_offset:
            await both.leader.seal(TOPIC, both.index)
        await both.reader_knows(model.end_offset)
        for client in (both.producer, both.consumer):
            for first_offset in (0, chance.randint(0, model.last_stable_offset)):
                consumer = CommittedConsumer(first_offset)
                while consumer.position < model.last_stable_offset:
                    before = consumer.position
                    limits = {"partition_max_bytes": chance.choice([1, 150, 400, 1000, 1 << 20])}
                    part = await consume(client, TOPIC, both.index, consumer, **limits)
                    assert part.last_stable_offset == model.last_stable_offset
                    assert consumer.position > before, "each fetch brings something"
                assert consumer.position == model.last_stable_offset
                assert consumer.records == model.seen(first_offset)


@on_uvloop
async def test_the_next_leader_knows_open_and_aborted_transactions() -> None:
    """Handed over with an open transaction: the successor answers as the leader did, and ends it."""
    async with pair() as both:
        write = writer(both.leader, TOPIC, both.index)
        await write.append(A, [b"a"])
        await write.append(B, [b"b"])
        await write.abort(A)
        await write.append(3, [b"c"])
        await both.leader.stop()
        logs = both.reader.process.serving.logs
        await until(lambda: logs.partition(TOPIC, both.index), "the other broker leads")
        successor = logs.partition(TOPIC, both.index)
        assert successor is not None
        await logs.open(successor)
        assert successor.last_stable_offset == 1
        consumer = CommittedConsumer()
        assert aborted_in(await consume(both.consumer, TOPIC, both.index, consumer)) == [(A, 0)]
        assert (consumer.records, consumer.position) == ([], 1)
        write = Writer(logs, successor)
        await write.commit(B)
        await write.commit(3)
        assert aborted_in(await consume(both.consumer, TOPIC, both.index, consumer)) == [(A, 0)]
        assert consumer.records == [(1, b"b"), (3, b"c")]
