"""Reads anywhere: a broker that does not lead a partition serves what is published, as the leader does."""

import statistics
import threading
import time
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.cluster_wire import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    delete_records,
    epoch_end,
    fetch_with_epoch,
)
from tests.support.nightly import by_day
from tests.support.topics import delete_topic, describe_topic
from tests.support.waiting import wait_until
from tests.support.zoned_cluster import ZonedCluster

CHECKPOINT_SEGMENTS = 128  # after so many segments the older ones move from the record to a checkpoint
LONG_MS = 60_000  # a loaded machine may take a while to publish a record


def write(leader: KafscaleBroker, topic: str, *values: bytes, partition: int = 0) -> int:
    """One batch at the leader; the offset behind it."""
    with wire.connect(leader) as connection:
        answer = wire.produce(connection, topic, partition, wire.batch(values))
    assert answer.error_code == NONE, f"error {answer.error_code}"
    return int(answer.base_offset) + len(values)


def fetched(broker: KafscaleBroker, topic: str, offset: int, partition: int = 0, **limits: int) -> Any:
    """The result of one Fetch of the partition."""
    with wire.connect(broker) as connection:
        wire.introduce(connection)
        return wire.fetch(connection, topic, {partition: offset}, **{"max_wait_ms": 0, **limits})[partition]


class Waiting:
    """A Fetch in progress; `reply` waits for its end."""

    def __init__(self, broker: KafscaleBroker, topic: str, offsets: dict[int, int], **limits: int) -> None:
        self._connection = wire.Wire(broker.host, broker.port)
        # The first of a connection is slower, and the broker may not follow the partition yet.
        wire.fetch(self._connection, topic, offsets, max_wait_ms=0)
        self._connection.send(
            wire.fetch_request(topic, offsets, **{"max_wait_ms": LONG_MS, **limits}), wire.FETCH_VERSION
        )

    def reply(self) -> dict[int, Any]:
        try:
            _, decoded = self._connection.receive(FetchResponse, wire.FETCH_VERSION)
        finally:
            self._connection.close()
        return {part.partition_index: part for one in decoded.responses for part in one.partitions}


# --- the same bytes


def test_every_broker_serves_the_same_bytes(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    leader = cluster.leader(topic)
    with wire.connect(leader) as connection:
        for number, codec in enumerate(("none", "gzip", "lz4", "snappy", "zstd")):
            records = wire.batch([b"%d-%d" % (number, n) * 20 for n in range(10)], codec=codec)
            assert wire.produce(connection, topic, 0, records).error_code == NONE
    asked = [(offset, size) for offset in (0, 5, 10, 29, 49) for size in (1, 200, 1 << 20)]
    expected = [fetched(leader, topic, offset, partition_max_bytes=size) for offset, size in asked]
    assert wire.records_in(expected[2].records)[-1][0] == 49
    for other in cluster.others(topic):
        wait_until(lambda: fetched(other, topic, 0).high_watermark == 50, "it knows everything")  # noqa: B023
        for (offset, size), wanted in zip(asked, expected, strict=True):
            part = fetched(other, topic, offset, partition_max_bytes=size)
            assert (part.error_code, bytes(part.records)) == (NONE, bytes(wanted.records)), (offset, size)
            assert (part.high_watermark, part.log_start_offset) == (50, 0)


def test_cold_reads_of_many_segments(cluster: ZonedCluster) -> None:
    """One broker follows from the start, beyond a checkpoint; the other meets all of it at once."""
    topic = cluster.topic(1)
    follows, cold = cluster.others(topic)
    count = CHECKPOINT_SEGMENTS + 20
    expected = [(number, b"%d" % number) for number in range(count)]
    with wire.connect(cluster.leader(topic)) as writer, wire.connect(follows) as reader:
        seen: list[Any] = []
        for _, value in expected:
            assert wire.produce(writer, topic, 0, wire.batch([value])).error_code == NONE
            seen += wire.records_in(wire.fetch(reader, topic, {0: len(seen)}, max_wait_ms=0)[0].records)
        assert seen == expected[: len(seen)]
        wait_until(lambda: fetched(follows, topic, 0).high_watermark == count, "it knows everything")
        seen += wire.read_all(reader, topic, 0, len(seen))
    assert seen == expected
    with wire.connect(cold) as connection:
        assert wire.read_all(connection, topic, 0) == expected


# --- waiting for more


def test_waiting_fetch_at_other_broker_ends_at_publication(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    leader = cluster.leader(topic)
    end = write(leader, topic, b"first")
    for other in cluster.others(topic):
        late_ms = []
        for _ in range(5):
            waiting = Waiting(other, topic, {0: end})
            end = write(leader, topic, b"next")
            published = time.monotonic()
            part = waiting.reply()[0]
            late_ms.append((time.monotonic() - published) * 1000)
            assert wire.records_in(part.records) == [(end - 1, b"next")]
        print(f"{other.name}: {[round(one, 1) for one in late_ms]} ms after the acknowledgement")
        assert statistics.median(late_ms) < 200


def test_min_bytes_counts_what_three_leaders_publish(cluster: ZonedCluster) -> None:
    topic = cluster.topic(3, {"compression.type": "producer"})
    leaders = {index: cluster.brokers[one] for index, one in cluster.cluster.leaders(topic).items()}
    assert len(set(leaders.values())) == 3
    size = len(wire.batch([b"x" * 100]))
    for broker in cluster.brokers.values():
        ends = {index: fetched(leader, topic, 0, index).high_watermark for index, leader in leaders.items()}
        began = time.monotonic()
        waiting = Waiting(broker, topic, ends, min_bytes=3 * size)
        for index in (0, 1):
            write(leaders[index], topic, b"x" * 100, partition=index)
        last = threading.Timer(0.3, write, (leaders[2], topic, b"x" * 100), {"partition": 2})
        last.start()
        parts = waiting.reply()
        waited_s = time.monotonic() - began
        last.join()  # a broker that follows may know of the record before its leader has heard that it is there
        assert {index: len(wire.records_in(part.records)) for index, part in parts.items()} == {
            0: 1,
            1: 1,
            2: 1,
        }
        assert 0.3 <= waited_s < LONG_MS / 1000 / 2


def test_less_than_min_bytes_is_sent_when_the_wait_is_over(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    write(cluster.leader(topic), topic, b"x")
    for other in cluster.others(topic):
        wait_until(lambda: fetched(other, topic, 0).high_watermark == 1, "it knows the record")  # noqa: B023
        began = time.monotonic()
        part = fetched(other, topic, 0, max_wait_ms=300, min_bytes=10_000)
        assert time.monotonic() - began >= 0.3
        assert wire.records_in(part.records) == [(0, b"x")]


# --- offsets that are not there


def test_stale_broker_does_not_answer_out_of_range(cluster: ZonedCluster) -> None:
    """At once after each acknowledgement, before what others follow can have arrived."""
    topic = cluster.topic(1)
    end = write(cluster.leader(topic), topic, b"first")
    behind = 0
    with wire.connect(cluster.leader(topic)) as writer, wire.connect(cluster.others(topic)[0]) as reader:
        wire.fetch(reader, topic, {0: 0}, max_wait_ms=0)
        for _ in range(40):
            sent = reader.send(wire.fetch_request(topic, {0: end}, max_wait_ms=0), wire.FETCH_VERSION)
            end = wire.produce(writer, topic, 0, wire.batch([b"x"])).base_offset + 1
            at_end = wire.fetch_request(topic, {0: end}, max_wait_ms=0)
            reader.send(at_end, wire.FETCH_VERSION)
            received, before = reader.receive(FetchResponse, wire.FETCH_VERSION)
            assert received == sent
            behind += before.responses[0].partitions[0].high_watermark < end
            _, after = reader.receive(FetchResponse, wire.FETCH_VERSION)
            part = after.responses[0].partitions[0]
            assert (part.error_code, part.high_watermark) == (NONE, end)
    assert behind, "the broker was never behind: nothing was tried"


def test_an_offset_above_the_end_is_out_of_range_everywhere(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    end = write(cluster.leader(topic), topic, b"x")
    for broker in cluster.brokers.values():
        assert fetched(broker, topic, end).error_code == NONE
        assert fetched(broker, topic, end + 1).error_code == OFFSET_OUT_OF_RANGE
        assert fetched(broker, topic, 0, partition=1).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_future_leader_epoch_is_unknown_at_every_broker(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    write(cluster.leader(topic), topic, b"x")
    epoch = cluster.led(topic, 1)[0].epoch
    for broker in cluster.brokers.values():
        with wire.connect(broker) as connection:
            assert fetch_with_epoch(connection, topic, epoch).error_code == NONE
            assert fetch_with_epoch(connection, topic, epoch + 1).error_code == UNKNOWN_LEADER_EPOCH


def test_deleted_records_are_out_of_range_everywhere(cluster: ZonedCluster) -> None:
    topic = cluster.topic(1)
    for number in range(4):
        write(cluster.leader(topic), topic, b"%d" % number)
    others = cluster.others(topic)
    for other in others:
        assert fetched(other, topic, 0).error_code == NONE
    with wire.connect(cluster.leader(topic)) as connection:
        assert delete_records(connection, topic, 0, 3).low_watermark == 3
    for broker in (cluster.leader(topic), *others):
        wait_until(lambda: fetched(broker, topic, 3).log_start_offset == 3, "the new start")  # noqa: B023
        assert fetched(broker, topic, 2).error_code == OFFSET_OUT_OF_RANGE
        assert wire.records_in(fetched(broker, topic, 3).records) == [(3, b"3")]


# --- topics that go and come back


@pytest.mark.parametrize("through", [1, 2, 3])
def test_a_topic_that_is_deleted_ends_what_waits_for_it(cluster: ZonedCluster, through: int) -> None:
    topic = cluster.topic(3)
    waiting = [Waiting(broker, topic, {0: 0, 1: 0, 2: 0}) for broker in cluster.brokers.values()]
    began = time.monotonic()
    delete_topic(cluster.brokers[through], topic)
    for one in waiting:
        errors = {part.error_code for part in one.reply().values()}
        assert UNKNOWN_TOPIC_OR_PARTITION in errors
    assert time.monotonic() - began < LONG_MS / 1000 / 2


def test_a_topic_that_comes_back_is_another_one(cluster: ZonedCluster) -> None:
    topic = cluster.topic(3)
    ids = set()
    for life in range(3):
        told = [b"life %d, partition %d" % (life, partition) for partition in range(3)]
        for partition, value in enumerate(told):
            for _ in range(3 - life):  # fewer each time: what was there must not show behind the end
                write(cluster.leader(topic, partition), topic, value, partition=partition)
        for broker in cluster.brokers.values():
            with wire.connect(broker) as connection:
                ids.add(describe_topic(connection, topic).topic_id)
                for partition, value in enumerate(told):
                    expected = [(offset, value) for offset in range(3 - life)]
                    wait_until(
                        lambda: read_of_this_life(connection, topic, partition, value) == expected,  # noqa: B023
                        f"{broker.name} serves {topic}-{partition} of life {life}",
                    )
                    beyond = fetched(broker, topic, 4 - life, partition)
                    assert beyond.error_code == OFFSET_OUT_OF_RANGE
        assert len(ids) == life + 1
        if life < 2:
            delete_topic(cluster.brokers[1 + life], topic)
            create_topic_everywhere(cluster, topic)


def read_of_this_life(connection: wire.Wire, topic: str, partition: int, value: bytes) -> list[Any]:
    """Everything in the partition, in which there may be nothing else than that value."""
    part = wire.fetch(connection, topic, {partition: 0}, max_wait_ms=0)[partition]
    records = wire.records_in(part.records)
    assert {one for _, one in records} <= {value}, f"records of another life: {records}"
    return records


def create_topic_everywhere(cluster: ZonedCluster, topic: str) -> None:
    """Create it again, and wait until every broker knows that one."""
    cluster.cluster.create_topic(topic, 3)
    ids = set()
    for broker in cluster.brokers.values():
        with wire.connect(broker) as connection:
            ids.add(describe_topic(connection, topic).topic_id)
    assert len(ids) == 1, "create_topic waits until all say the same"


def test_leader_knows_every_record_another_broker_served(cluster: ZonedCluster) -> None:
    """Others may hear of a publication before its leader does: it must not deny to have it (KIP-320).

    A consumer that moves to the leader would take its records for lost, and begin again before them.
    """
    topic = cluster.topic(1)
    leader, other = cluster.leader(topic), cluster.others(topic)[0]
    epoch = cluster.led(topic, 1)[0].epoch
    end = write(leader, topic, b"first")
    with wire.connect(leader) as writer, wire.connect(other) as reader, wire.connect(leader) as asker:
        wire.fetch(reader, topic, {0: 0}, max_wait_ms=0)
        for number in range(by_day(40, by_night=200)):
            reader.send(wire.fetch_request(topic, {0: end}, max_wait_ms=LONG_MS), wire.FETCH_VERSION)
            writer.send(wire.produce_request(topic, {0: wire.batch([b"x"])}), wire.PRODUCE_VERSION)
            _, reply = reader.receive(FetchResponse, wire.FETCH_VERSION)
            answered = reply.responses[0].partitions[0]
            assert answered.records, f"number {number}: {answered}"
            end = wire.records_in(answered.records)[-1][0] + 1
            match number % 3:
                case 0:
                    answer = epoch_end(asker, topic, epoch, current=epoch)
                    assert (answer.error_code, answer.leader_epoch) == (NONE, epoch)
                    assert answer.end_offset >= end
                case 1:
                    assert wire.list_offset(asker, topic, 0, wire.LATEST).offset >= end
                case _:
                    part = wire.fetch(asker, topic, {0: end}, max_wait_ms=0)[0]
                    assert (part.error_code, part.high_watermark) == (NONE, end)
            assert wire.receive_produce(writer)[1].base_offset == end - 1
