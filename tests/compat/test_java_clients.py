"""The Java client, with its defaults (idempotence, acks=all) unless a test says otherwise."""

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.java import JavaRecord, ToolServer
from tests.support.topics import unique_name

TIME_MS = 1_700_000_000_000


def test_a_record_comes_back_whole(broker: Peer, java: ToolServer, new_topic: NewTopic) -> None:
    topic = new_topic()
    headers = (("one", b"1"), ("one", None), ("zwei", bytes(range(256))))
    sent = [
        JavaRecord(value=b"value", key=b"key", partition=0, timestamp=TIME_MS, headers=headers),
        JavaRecord(value=None, key=b"tombstone", partition=0, timestamp=TIME_MS + 1),
        JavaRecord(value=b"", partition=0, timestamp=TIME_MS + 2),
    ]
    config = {"bootstrap.servers": broker.bootstrap}
    results = java.produce(topic, sent, config)
    assert [result.get("offset") for result in results] == [0, 1, 2], results
    received = java.consume(topic, 0, 3, config)
    assert [(one.key, one.value, one.headers, one.timestamp) for one in received] == [
        (one.key, one.value, one.headers, one.timestamp) for one in sent
    ]
    assert {one.timestamp_type for one in received} == {"CreateTime"}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_stores_the_records(
    broker: Peer, java: ToolServer, new_topic: NewTopic, acks: str
) -> None:
    topic = new_topic()
    sent = [JavaRecord(value=b"%d" % n, partition=0) for n in range(50)]
    idempotent = str(acks == "all").lower()
    config = {"bootstrap.servers": broker.bootstrap, "acks": acks, "enable.idempotence": idempotent}
    results = java.produce(topic, sent, config)
    assert not [result for result in results if "error" in result]
    received = java.consume(topic, 0, 50, {"bootstrap.servers": broker.bootstrap})
    assert [one.value for one in received] == [one.value for one in sent]


def test_oversized_message_is_refused_and_producer_continues(
    broker: Peer, java: ToolServer, new_topic: NewTopic
) -> None:
    topic = new_topic(configs={"max.message.bytes": 10_000})
    sent = [JavaRecord(value=b"x" * size, partition=0) for size in (9000, 20_000, 100)]
    # one record per request, so that the large one fails alone
    config = {
        "bootstrap.servers": broker.bootstrap,
        "batch.size": 0,
        "max.in.flight.requests.per.connection": 1,
    }
    first, large, last = java.produce(topic, sent, config)
    assert first["offset"] == 0
    assert large["error"] == "RecordTooLargeException"
    assert last["offset"] == 1


def test_log_append_time_reaches_producer_and_consumer(
    broker: Peer, java: ToolServer, new_topic: NewTopic
) -> None:
    topic = new_topic(configs={"message.timestamp.type": "LogAppendTime"})
    config = {"bootstrap.servers": broker.bootstrap}
    result = java.produce(topic, [JavaRecord(value=b"x", partition=0, timestamp=TIME_MS)], config)[0]
    assert result["timestamp"] > TIME_MS
    received = java.consume(topic, 0, 1, config)[0]
    assert (received.timestamp, received.timestamp_type) == (result["timestamp"], "LogAppendTime")


def test_a_consumer_finds_the_ends_and_a_time(broker: Peer, java: ToolServer, new_topic: NewTopic) -> None:
    topic = new_topic()
    config = {"bootstrap.servers": broker.bootstrap}
    java.produce(
        topic, [JavaRecord(value=b"x", partition=0, timestamp=TIME_MS + 1000 * n) for n in range(5)], config
    )
    found = java.offsets(topic, 0, config, timestamp=TIME_MS + 1500)
    assert (found["beginning"], found["end"]) == (0, 5)
    assert (found["for_time"], found["time_found"]) == (2, TIME_MS + 2000)
    assert java.offsets(topic, 0, config, timestamp=TIME_MS + 4001)["for_time"] is None
    assert [one.offset for one in java.consume(topic, 0, 2, config, offset=3)] == [3, 4]


def test_unknown_topic_times_out_without_auto_creation(strict_broker: Peer, java: ToolServer) -> None:
    config = {"bootstrap.servers": strict_broker.bootstrap, "max.block.ms": 1500}
    result = java.produce(unique_name(), [JavaRecord(value=b"lost")], config)[0]
    assert result["error"] == "TimeoutException"
    assert "not present in metadata" in result["message"]
