"""When an idle consumer's fetch is answered from memory, and when it is not."""

import asyncio
import dataclasses
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kafka.protocol.admin import DeleteTopicsRequest

from kafscale.formats.topic_record import encode_broker_record
from kafscale.log.leadership.events import Event
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.idle_answers import IdleAnswers
from tests.support import wire
from tests.support.fetch_twins import PARTITIONS, TOPIC, VERSIONS, Twins, body_of, fetch_body
from tests.support.in_process_broker import in_process_broker, until
from tests.support.log_transactions import committed_request, writer
from tests.support.on_uvloop import on_uvloop

LONG_MS = 60_000


@asynccontextmanager
async def twins() -> AsyncIterator[Twins]:
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        yield Twins(broker)


@pytest.mark.parametrize("version", VERSIONS)
@on_uvloop
async def test_the_second_request_of_an_idle_consumer_is_not_decoded(version: int) -> None:
    async with twins() as twin:
        request = wire.fetch_request(TOPIC, dict.fromkeys(range(PARTITIONS), 0), max_wait_ms=5)
        record = twin.fast.view.topic(TOPIC)
        assert record is not None
        request.topics[0].topic_id = record.topic_id
        body = body_of(request, version)
        first = await twin.poll(body, version)
        assert twin.answers.found == 0
        for found in (1, 2, 3):
            again = await twin.poll(body, version)
            assert again.answer == first.answer
            assert again.correlation_id == first.correlation_id + found
            assert twin.answers.found == found
        assert twin.nobody_waits()


@on_uvloop
async def test_an_idle_consumer_still_waits_as_long_as_it_asked_to() -> None:
    async with twins() as twin:
        body = fetch_body({0: 0}, max_wait_ms=150)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began = loop.time()
            await twin.poll(body, 11)
            assert loop.time() - began >= 0.149
        assert twin.answers.found == 2


@on_uvloop
async def test_an_idle_consumer_gets_published_records_at_once() -> None:
    async with twins() as twin, twin.broker.connect() as producer:
        await twin.poll(fetch_body({0: 0, 1: 0}, max_wait_ms=5), 11)
        # The same but for the wait: an answer for each.
        long_body = fetch_body({0: 0, 1: 0}, max_wait_ms=50)
        await twin.poll(long_body, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, long_body, 11)
        assert twin.answers.found == 1
        await producer.produce(TOPIC, 1, wire.batch([b"fresh"]))
        await until(lambda: waiting.frame is not None, "the record")
        assert b"fresh" in (waiting.frame or b"")
        assert twin.nobody_waits()
        again = twin.ask(twin.fast, long_body, 11)
        assert b"fresh" in (again.frame or b"")
        assert twin.answers.found == 1


@on_uvloop
async def test_min_bytes_of_an_idle_consumer_counts_all_publications() -> None:
    async with twins() as twin, twin.broker.connect() as producer:
        body = fetch_body({0: 0, 1: 0}, max_wait_ms=300, min_bytes=1500)
        await twin.poll(body, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        assert twin.answers.found == 1
        await producer.produce(TOPIC, 0, wire.batch([bytes(700)]))
        assert waiting.frame is None
        await producer.produce(TOPIC, 1, wire.batch([bytes(900)]))
        await until(lambda: waiting.frame is not None, "both records")
        assert len(waiting.frame or b"") > 1600


@on_uvloop
async def test_an_idle_committed_consumer_waits_for_the_marker() -> None:
    async with twins() as twin:
        write = writer(twin.broker, TOPIC)
        await write.append(7, [b"open"])
        body = body_of(committed_request(TOPIC, {0: 0}, max_wait_ms=50), 11)
        first = await twin.poll(body, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        assert twin.answers.found == 1
        await write.append(7, [b"more"])
        assert waiting.frame is None
        await write.abort(7)
        await until(lambda: waiting.frame is not None, "the aborted transaction")
        assert len(waiting.frame or b"") > len(first.frame or b"") + 100
        again = twin.ask(twin.slow, body, 11)
        assert again.answer == waiting.answer


@on_uvloop
async def test_less_than_min_bytes_leaves_with_the_deadline() -> None:
    async with twins() as twin, twin.broker.connect() as producer:
        body = fetch_body({0: 0}, max_wait_ms=100, min_bytes=1 << 20)
        await twin.poll(body, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        await producer.produce(TOPIC, 0, wire.batch([b"little"]))
        await until(lambda: waiting.frame is not None, "the deadline")
        assert b"little" in (waiting.frame or b"")
        assert twin.nobody_waits()


@on_uvloop
async def test_the_answers_of_a_topic_that_goes_are_not_kept() -> None:
    async with twins() as twin, twin.broker.connect() as admin:
        body = fetch_body({0: 0}, max_wait_ms=50)
        await twin.poll(body, 11)
        assert len(twin.answers) == 1
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        await admin.send(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5000), 5)
        await until(lambda: waiting.frame is not None, "told at once")
        code = struct.pack(">h", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert code in (waiting.frame or b"")
        again = await twin.poll(body, 11)
        assert code in (again.frame or b"")
        assert len(twin.answers) == 0


@on_uvloop
async def test_a_consumer_that_leaves_is_waited_for_no_more() -> None:
    async with twins() as twin:
        await twin.poll(fetch_body({0: 0}, max_wait_ms=5), 11)
        for body in (fetch_body({0: 0}, max_wait_ms=LONG_MS), fetch_body({0: 0}, max_wait_ms=200)):
            await asyncio.sleep(0)
            reply = twin.ask(twin.fast, body, 11)
            assert reply.abandoned is not None
            reply.abandoned()
            assert twin.nobody_waits()
            assert reply.frame is None
        body = fetch_body({0: 0}, max_wait_ms=5)
        reply = twin.ask(twin.fast, body, 11)
        assert twin.answers.found == 1 and reply.abandoned is not None
        reply.abandoned()
        assert twin.nobody_waits()


@on_uvloop
async def test_what_is_kept_of_answers_is_bounded() -> None:
    async with twins() as twin:
        answers = IdleAnswers(twin.fast.view, twin.fast.logs, limit_bytes=2500)
        services = dataclasses.replace(twin.fast, idle_answers=answers)
        for index in range(PARTITIONS):
            reply = twin.ask(services, fetch_body({index: 0}, max_wait_ms=1), 11)
            await until(lambda: reply.frame is not None, "the answer")  # noqa: B023
        assert len(answers) == 3
        assert answers.find((11, fetch_body({0: 0}, max_wait_ms=1))) is None
        assert answers.find((11, fetch_body({3: 0}, max_wait_ms=1))) is not None


@on_uvloop
async def test_a_new_broker_in_the_rack_is_named_to_an_idle_consumer() -> None:
    async with twins() as twin:
        body = fetch_body({0: 0}, rack="c", max_wait_ms=50)
        first = await twin.poll(body, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        assert twin.answers.found == 1
        record = BrokerRecord(broker_id=7, host="elsewhere", port=9092, rack="c")
        await twin.broker.metadata.transact([], [Put(keys.broker(7), encode_broker_record(record))])
        await twin.fast.view.wait_until(lambda: twin.fast.view.broker(7) is not None)
        await until(lambda: waiting.frame is not None, "the deadline")
        # What waited when the broker came is answered as any fetch that waited for a partition that is led here.
        assert waiting.answer == first.answer
        again = twin.ask(twin.fast, body, 11)
        assert again.frame is not None, "who is sent elsewhere does not wait"
        slow = twin.ask(twin.slow, body, 11)
        assert again.answer == slow.answer != first.answer


@on_uvloop
async def test_a_stopping_broker_sends_an_idle_consumer_to_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with twins() as twin:
        # Said to the handlers only: the broker itself would let go of its partitions.
        other = BrokerRecord(broker_id=7, host="elsewhere", port=9092, rack="d")
        monkeypatch.setattr(twin.fast.view, "broker_state", lambda broker_id: BrokerState.STOPPING)
        monkeypatch.setattr(twin.fast.view, "brokers_to_read_from", lambda: (other,))
        body = fetch_body({0: 0}, rack="c", max_wait_ms=5)
        first = await twin.poll(body, 11)
        assert (await twin.poll(body, 11)).answer == first.answer
        assert twin.answers.found == 1
        twin.broker.partition(TOPIC).leadership.apply(Event.RESIGN)
        again = twin.ask(twin.fast, body, 11)
        assert again.frame is not None, "who is sent elsewhere does not wait"
        assert again.answer == twin.ask(twin.slow, body, 11).answer != first.answer


@on_uvloop
async def test_a_new_leader_epoch_fences_the_next_idle_fetch() -> None:
    async with twins() as twin:
        request = wire.fetch_request(TOPIC, {0: 0}, max_wait_ms=20)
        epoch = twin.broker.partition(TOPIC).record.leader_epoch
        request.topics[0].partitions[0].current_leader_epoch = epoch
        body = body_of(request, 11)
        twin.deadlines.tick()
        waiting = twin.ask(twin.fast, body, 11)
        partition = twin.broker.partition(TOPIC)
        newer = dataclasses.replace(partition.record, leader_epoch=epoch + 1)
        partition.stored(newer, partition.revision + 1, partition.applied_sequence)
        await until(lambda: waiting.frame is not None, "the deadline")
        again = twin.ask(twin.fast, body, 11)
        assert again.frame is not None
        assert again.error_code == ErrorCode.FENCED_LEADER_EPOCH
