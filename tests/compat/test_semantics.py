"""Behaviour that clients rely on without saying so, checked over a raw connection."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.compat.conftest import AUTO_CREATE_PARTITIONS, NewTopic, Peer
from tests.support import wire
from tests.support.cluster_wire import delete_records
from tests.support.topics import create_topic, delete_topic, describe_topic, unique_name
from tests.support.waiting import wait_until
from tests.support.wire import Wire

TIME_MS = 1_700_000_000_000

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_RECORD = 87
FETCH_SESSION_ID_NOT_FOUND = 70
UNKNOWN_TOPIC_ID = 100


@pytest.fixture
def connection(broker: Peer) -> Iterator[Wire]:
    with wire.connect(broker) as opened:
        wire.introduce(opened)
        yield opened


def fetched_batches(connection: Wire, topic: str, offset: int = 0, **limits: int) -> list[Any]:
    part = wire.fetch(connection, topic, {0: offset}, **limits)[0]
    assert part.error_code == 0
    data, found = bytes(part.records), []
    while data:
        size = 12 + struct.unpack_from(">i", data, 8)[0]
        found.append(DefaultRecordBatch(data[:size]))
        data = data[size:]
    return found


# --- topics


def test_a_topic_created_again_starts_empty_at_offset_0(broker: Peer, connection: Wire) -> None:
    name = unique_name()
    ids = set()
    for generation in range(3):
        create_topic(broker, name)
        ids.add(describe_topic(connection, name).topic_id)
        assert wire.list_offset(connection, name, 0, -2).offset == 0
        assert wire.list_offset(connection, name, 0, -1).offset == 0
        assert wire.read_all(connection, name, 0) == []
        value = b"generation %d" % generation
        assert wire.produce(connection, name, 0, wire.batch([value])).base_offset == 0
        assert wire.read_all(connection, name, 0) == [(0, value)]
        delete_topic(broker, name)
    assert len(ids) == 3


def test_a_topics_id_is_not_zero_and_stays(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    ids = {describe_topic(connection, topic).topic_id for _ in range(3)}
    assert len(ids) == 1
    assert next(iter(ids)).int != 0


def test_metadata_creates_topic_only_if_request_allows(connection: Wire) -> None:
    topic = unique_name()
    assert describe_topic(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert describe_topic(connection, topic).error_code == UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: describe_topic(connection, topic, auto_create=True).error_code == 0, "the topic")
    assert len(describe_topic(connection, topic).partitions) == AUTO_CREATE_PARTITIONS


def test_metadata_creates_no_topic_unless_broker_allows(strict_broker: Peer) -> None:
    topic = unique_name()
    with wire.connect(strict_broker) as opened:
        for _ in range(2):
            described = describe_topic(opened, topic, auto_create=True)
            assert described.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_missing_partition_is_unknown_to_every_request(connection: Wire, new_topic: NewTopic) -> None:
    for topic, partition in ((new_topic(), 1), (unique_name("absent"), 0)):
        produced = wire.produce(connection, topic, partition, wire.batch([b"x"]))
        assert (produced.error_code, produced.base_offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
        part = wire.fetch(connection, topic, {partition: 0})[partition]
        assert part.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert wire.list_offset(connection, topic, partition, -1).error_code == UNKNOWN_TOPIC_OR_PARTITION


# --- produce


def test_produce_answers_the_offset_of_its_first_record(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    for expected, count in ((0, 3), (3, 1), (4, 10)):
        answer = wire.produce(connection, topic, 0, wire.batch([b"x"] * count))
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, expected, 0)
        assert answer.log_append_time_ms == -1


def test_one_request_reaches_several_partitions(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    request = wire.produce_request(topic, {n: wire.batch([b"%d" % n] * (n + 1)) for n in range(3)})
    reply = connection.call(request, ProduceResponse, wire.PRODUCE_VERSION)
    answers = {one.index: one for one in reply.responses[0].partition_responses}
    assert {n: (one.error_code, one.base_offset) for n, one in answers.items()} == dict.fromkeys(
        range(3), (0, 0)
    )
    for n in range(3):
        assert wire.read_all(connection, topic, n) == [(i, b"%d" % n) for i in range(n + 1)]


def test_bad_partition_does_not_affect_others_of_its_request(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    request = wire.produce_request(topic, {0: wire.batch([b"good"]), 5: wire.batch([b"lost"])})
    reply = connection.call(request, ProduceResponse, wire.PRODUCE_VERSION)
    answers = {one.index: one.error_code for one in reply.responses[0].partition_responses}
    assert answers == {0: 0, 5: UNKNOWN_TOPIC_OR_PARTITION}
    assert wire.read_all(connection, topic, 0) == [(0, b"good")]


def test_acks_0_gets_no_reply_and_is_stored(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    connection.send(wire.produce_request(topic, {0: wire.batch([b"first"])}, acks=0), wire.PRODUCE_VERSION)
    # the next reply on this connection is that to the next request
    assert wire.produce(connection, topic, 0, wire.batch([b"second"])).base_offset == 1
    assert wire.read_all(connection, topic, 0) == [(0, b"first"), (1, b"second")]


def test_acks_that_kafka_does_not_know_are_refused(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert wire.produce(connection, topic, 0, wire.batch([b"x"]), acks=2).error_code == INVALID_REQUIRED_ACKS
    assert wire.read_all(connection, topic, 0) == []


def test_batch_at_size_limit_is_stored_and_one_more_byte_refused(
    connection: Wire, new_topic: NewTopic
) -> None:
    limit = 50_000
    topic = new_topic(configs={"max.message.bytes": limit})
    overhead = len(wire.batch([b"x" * 20_000])) - 20_000
    exact, above = wire.batch([b"x" * (limit - overhead)]), wire.batch([b"x" * (limit + 1 - overhead)])
    assert (len(exact), len(above)) == (limit, limit + 1)
    assert wire.produce(connection, topic, 0, above).error_code == MESSAGE_TOO_LARGE
    assert wire.produce(connection, topic, 0, exact).base_offset == 0
    assert wire.list_offset(connection, topic, 0, -1).offset == 1


def test_several_batches_of_one_partition_are_refused(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    together = b"".join(wire.batch([b"%d%d" % (n, i) for i in range(3)]) for n in range(4))
    answer = wire.produce(connection, topic, 0, together)
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert wire.produce(connection, topic, 0, wire.batch([b"next"])).base_offset == 0


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_acks_1_and_deletion_need_no_timeout(connection: Wire, new_topic: NewTopic, timeout_ms: int) -> None:
    topic = new_topic()
    request = wire.produce_request(topic, {0: wire.batch([b"a", b"b"])}, acks=1, timeout_ms=timeout_ms)
    answer = (
        connection.call(request, ProduceResponse, wire.PRODUCE_VERSION).responses[0].partition_responses[0]
    )
    assert (answer.error_code, answer.base_offset) == (0, 0)
    deleted = delete_records(connection, topic, 0, 1, timeout_ms)
    assert (deleted.error_code, deleted.low_watermark) == (0, 1)


@pytest.mark.usefixtures("only_kafscale")  # Kafka 4 dropped Produce before v3
@pytest.mark.parametrize(
    ("magic", "codec"),  # magic 0 with lz4: Kafka 0.8 wrote a wrong checksum there, and no client does today
    [(0, "none"), (0, "gzip"), (0, "snappy"), (1, "none"), (1, "gzip"), (1, "snappy"), (1, "lz4")],
)
def test_an_old_message_set_becomes_a_batch(
    connection: Wire, new_topic: NewTopic, magic: int, codec: str
) -> None:
    topic = new_topic()
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=wire.CODECS[codec], batch_size=1 << 20)
    for n in range(5):
        builder.append(n, timestamp=TIME_MS + n, key=b"k%d" % n, value=b"v%d" % n * 50)
    request = wire.produce_request(topic, {0: bytes(builder.build())})
    reply = connection.call(request, ProduceResponse, 2)
    answer = reply.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    (batch,) = fetched_batches(connection, topic)
    assert batch.magic == 2
    records = list(batch)
    assert [(record.offset, record.key, record.value) for record in records] == [
        (n, b"k%d" % n, b"v%d" % n * 50) for n in range(5)
    ]
    expected = [TIME_MS + n for n in range(5)] if magic == 1 else [-1] * 5
    assert [record.timestamp for record in records] == expected
    assert wire.produce(connection, topic, 0, wire.batch([b"next"])).base_offset == 5


# --- topic configs with an effect


def test_log_append_time_replaces_the_producers_timestamps(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    answer = wire.produce(connection, topic, 0, wire.batch([b"a", b"b"], timestamp=TIME_MS))
    after = int(time.time() * 1000)
    assert before <= answer.log_append_time_ms <= after
    (batch,) = fetched_batches(connection, topic)
    assert batch.timestamp_type == 1
    assert batch.validate_crc()
    assert [record.timestamp for record in batch] == [answer.log_append_time_ms] * 2
    assert wire.list_offset(connection, topic, 0, before).offset == 0
    assert wire.list_offset(connection, topic, 0, after + 1).offset == -1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_topic_compression_type_compresses_plain_batches(
    connection: Wire, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(configs={"compression.type": codec})
    values: list[bytes | None] = [b"the same text again and again " * 100] * 5
    wire.produce(connection, topic, 0, wire.batch(values))
    (batch,) = fetched_batches(connection, topic)
    assert batch.compression_type == wire.CODECS[codec]
    assert batch.size_in_bytes < 5000
    assert batch.validate_crc()
    assert [record.value for record in batch] == values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_producer_keeps_a_batch_byte_for_byte(
    connection: Wire, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(configs={"compression.type": "producer"})
    sent = wire.batch([b"the same text again and again " * 100] * 5, codec=codec)
    wire.produce(connection, topic, 0, sent)
    stored = bytes(wire.fetch(connection, topic, {0: 0})[0].records)
    assert (
        stored[16:] == sent[16:]
    )  # before that: base offset, length and leader epoch, which are the broker's
    assert stored[8:12] == sent[8:12]


def test_compression_type_uncompressed_keeps_plain_batch(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"compression.type": "uncompressed"})
    wire.produce(connection, topic, 0, wire.batch([b"the same text again and again " * 100]))
    (batch,) = fetched_batches(connection, topic)
    assert batch.compression_type == 0


# --- fetch


def test_idle_partitions_of_one_fetch_wait_together(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=12)
    began = time.monotonic()
    parts = wire.fetch(connection, topic, dict.fromkeys(range(12), 0), max_wait_ms=500)
    waited = time.monotonic() - began
    assert sorted(parts) == list(range(12))
    assert all((part.error_code, bytes(part.records or b"")) == (0, b"") for part in parts.values())
    assert 0.45 < waited < 2.0


def test_a_waiting_fetch_answers_when_a_record_arrives(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    with wire.connect(broker) as waiting, wire.connect(broker) as producing:
        began = time.monotonic()
        waiting.send(wire.fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=10_000), wire.FETCH_VERSION)
        wire.produce(producing, topic, 1, wire.batch([b"now"]))
        _, reply = waiting.receive(FetchResponse, wire.FETCH_VERSION)
        assert time.monotonic() - began < 5
    parts = {part.partition_index: part for part in reply.responses[0].partitions}
    assert wire.records_in(parts[1].records) == [(0, b"now")]


def test_a_fetch_waits_until_it_has_min_bytes(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    with wire.connect(broker) as waiting, wire.connect(broker) as producing:
        began = time.monotonic()
        request = wire.fetch_request(topic, {0: 0}, max_wait_ms=800, min_bytes=100_000)
        waiting.send(request, wire.FETCH_VERSION)
        wire.produce(producing, topic, 0, wire.batch([b"too little"]))
        _, reply = waiting.receive(FetchResponse, wire.FETCH_VERSION)
        assert time.monotonic() - began > 0.7  # the time was over, not the wish fulfilled
    assert wire.records_in(reply.responses[0].partitions[0].records) == [(0, b"too little")]


def test_a_fetch_from_inside_a_batch_gets_that_batch_whole(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    for n in range(3):
        wire.produce(connection, topic, 0, wire.batch([b"%d%d" % (n, i) for i in range(10)]))
    first = fetched_batches(connection, topic, 15)[0]
    assert (first.base_offset, first.last_offset) == (10, 19)


def test_first_batch_is_sent_even_if_over_the_limits(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    for value in (b"x" * 10_000, b"y" * 10_000):
        wire.produce(connection, topic, 0, wire.batch([value]))
    limits = {"max_bytes": 100, "partition_max_bytes": 100}
    assert [one.base_offset for one in fetched_batches(connection, topic, 0, **limits)] == [0]
    assert [one.base_offset for one in fetched_batches(connection, topic, 1, **limits)] == [1]


def test_the_limit_of_a_partition_bounds_what_it_sends(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"compression.type": "producer"})
    for _ in range(20):
        wire.produce(connection, topic, 0, wire.batch([b"x" * 1000]))
    part = wire.fetch(connection, topic, {0: 0}, partition_max_bytes=5000)[0]
    assert 1000 < len(part.records) <= 5000
    assert part.high_watermark == 20


def test_offsets_outside_the_log_are_out_of_range(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    wire.produce(connection, topic, 0, wire.batch([b"x"] * 3))
    for offset in (4, 1000):
        assert wire.fetch(connection, topic, {0: offset})[0].error_code == OFFSET_OUT_OF_RANGE
    at_end = wire.fetch(connection, topic, {0: 3}, max_wait_ms=10)[0]
    assert (at_end.error_code, at_end.high_watermark, bytes(at_end.records or b"")) == (0, 3, b"")


def test_a_topic_is_fetched_by_its_id(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    wire.produce(connection, topic, 0, wire.batch([b"x"]))
    topic_id = describe_topic(connection, topic).topic_id
    unknown = type(topic_id)(int=topic_id.int ^ 1)
    request = wire.fetch_request(topic, {0: 0})
    request.topics[0].topic_id = topic_id
    reply = connection.call(request, FetchResponse, 13)
    assert wire.records_in(reply.responses[0].partitions[0].records) == [(0, b"x")]
    request = wire.fetch_request(topic, {0: 0})
    request.topics[0].topic_id = unknown
    reply = connection.call(request, FetchResponse, 13)
    assert reply.responses[0].partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_fetch_session_never_loses_records(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    wire.produce(connection, topic, 0, wire.batch([b"a"]))
    request = wire.fetch_request(topic, {0: 0, 1: 0})
    request.session_epoch = 0  # asks for a session
    reply = connection.call(request, FetchResponse, wire.FETCH_VERSION)
    assert reply.error_code == 0
    parts = {one.partition_index: one for topic in reply.responses for one in topic.partitions}
    assert wire.records_in(parts[0].records) == [(0, b"a")]
    wire.produce(connection, topic, 1, wire.batch([b"b"]))
    # the next fetch of the session, or a full one where the broker keeps none
    session = reply.session_id
    following = wire.fetch_request(topic, {0: 1} if session else {0: 1, 1: 0})
    following.session_id, following.session_epoch = session, (1 if session else 0)
    reply = connection.call(following, FetchResponse, wire.FETCH_VERSION)
    assert reply.error_code == 0
    parts = {one.partition_index: one for topic in reply.responses for one in topic.partitions}
    assert wire.records_in(parts[1].records) == [(0, b"b")]


def test_a_fetch_session_that_never_was_is_an_error(connection: Wire, new_topic: NewTopic) -> None:
    request = wire.fetch_request(new_topic(), {0: 0})
    request.session_id, request.session_epoch = 123_456_789, 7
    reply = connection.call(request, FetchResponse, wire.FETCH_VERSION)
    assert reply.error_code == FETCH_SESSION_ID_NOT_FOUND


# --- offsets


def test_offsets_by_time_find_the_first_record_at_or_after_it(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    for seconds in ([1, 3, 2], [5], [4, 6]):  # batch by batch, and not in order
        stamps = [TIME_MS + 1000 * second for second in seconds]
        wire.produce(connection, topic, 0, wire.batch([b"x"] * len(stamps), timestamp=stamps))

    def found(timestamp: int) -> tuple[int, int]:
        answer = wire.list_offset(connection, topic, 0, timestamp)
        assert answer.error_code == 0
        return answer.offset, answer.timestamp

    assert found(-1) == (6, -1)
    assert found(-2) == (0, -1)
    assert found(-3) == (5, TIME_MS + 6000)
    assert found(0) == (0, TIME_MS + 1000)
    assert found(TIME_MS + 1001) == (1, TIME_MS + 3000)
    assert found(TIME_MS + 3001) == (3, TIME_MS + 5000)
    assert found(TIME_MS + 6000) == (5, TIME_MS + 6000)
    assert found(TIME_MS + 6001) == (-1, -1)


def test_an_empty_partition_has_ends_but_no_times(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    answers = {stamp: wire.list_offset(connection, topic, 0, stamp) for stamp in (-1, -2, -3, 0)}
    assert {stamp: (one.error_code, one.offset) for stamp, one in answers.items()} == {
        -1: (0, 0),
        -2: (0, 0),
        -3: (0, -1),
        0: (0, -1),
    }
