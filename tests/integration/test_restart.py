"""A restart keeps everything, whether the broker was asked to stop or was killed."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from kafscale.formats.partition_record import PartitionRecord, decode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.sqlite.reader import SqliteReader
from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.audit import audit
from tests.support.broker import KafscaleBroker
from tests.support.fsck import CLEAN, fsck, problems
from tests.support.sealing import NEVER_SEALED, SEALED_SOON
from tests.support.topics import create_topic, delete_topic, describe_topic, unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
TIME_MS = 1_700_000_000_000

Restart = Callable[[], None]


def kill_and_start(broker: KafscaleBroker) -> None:
    broker.kill9()
    broker.start()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    """One broker that the tests of this file restart."""
    started = KafscaleBroker(tmp_path_factory.mktemp("restart"), flush_interval_ms=5)
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.close()


@pytest.fixture(params=["SIGTERM", "SIGKILL"])
def restart(broker: KafscaleBroker, request: pytest.FixtureRequest) -> Restart:
    """Restarts the broker in one of the two ways."""
    return broker.restart if request.param == "SIGTERM" else lambda: kill_and_start(broker)


def send(broker: KafscaleBroker, topic: str, records: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    with wire.connect(broker) as connection:
        answer = wire.produce(connection, topic, 0, records)
        return answer.error_code, answer.base_offset


def test_records_offsets_and_times_stay(broker: KafscaleBroker, restart: Restart) -> None:
    topic = unique_name()
    create_topic(broker, topic, 2)
    expected: dict[int, list[tuple[int, bytes | None]]] = {0: [], 1: []}
    with wire.connect(broker) as connection:
        for n in range(20):
            for partition in (0, 1):
                values: list[bytes | None] = [b"%d.%d.%d" % (partition, n, i) for i in range(n + 1)]
                records = wire.batch(values, timestamp=TIME_MS + n, codec="gzip" if n % 2 else "none")
                base = wire.produce(connection, topic, partition, records).base_offset
                expected[partition] += [(base + i, value) for i, value in enumerate(values)]
    restart()
    with wire.connect(broker) as connection:
        for partition in (0, 1):
            assert wire.read_all(connection, topic, partition) == expected[partition]
            assert wire.list_offset(connection, topic, partition, wire.LATEST).offset == 210
            found = wire.list_offset(connection, topic, partition, TIME_MS + 5)
            assert (found.offset, found.timestamp) == (15, TIME_MS + 5)
    assert send(broker, topic, wire.batch([b"next"])) == (0, 210)


def test_topics_their_ids_and_their_configs_stay(broker: KafscaleBroker, restart: Restart) -> None:
    topic, gone = unique_name(), unique_name()
    create_topic(broker, topic, 3, {"retention.ms": 1_000_000, "max.message.bytes": 5000})
    create_topic(broker, gone)
    delete_topic(broker, gone)

    def state() -> tuple[Any, ...]:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = next(iter(admin.describe_configs([resource]).values())).result(PATIENCE_SEC)
        with wire.connect(broker) as connection:
            described = describe_topic(connection, topic)
            return (
                described.topic_id,
                len(described.partitions),
                admin.list_topics(timeout=PATIENCE_SEC).cluster_id,
                {key: entry.value for key, entry in configs.items()},
                describe_topic(connection, gone).error_code,
            )

    before = state()
    restart()
    assert state() == before
    assert before[3]["retention.ms"] == "1000000"
    assert before[4] == 3  # UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_records_stay_deleted(broker: KafscaleBroker, restart: Restart) -> None:
    topic = unique_name()
    create_topic(broker, topic)
    for n in range(10):
        send(broker, topic, wire.batch([b"%d" % n]))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    one = TopicPartition(topic, 0, 6)
    assert next(iter(admin.delete_records([one]).values())).result(PATIENCE_SEC).low_watermark == 6
    restart()
    with wire.connect(broker) as connection:
        assert wire.list_offset(connection, topic, 0, wire.EARLIEST).offset == 6
        assert wire.read_all(connection, topic, 0, 6) == [(n, b"%d" % n) for n in range(6, 10)]
        assert wire.fetch(connection, topic, {0: 5})[0].error_code == 1  # OFFSET_OUT_OF_RANGE


def test_a_topic_deleted_and_created_again_stays_empty(broker: KafscaleBroker, restart: Restart) -> None:
    topic = unique_name()
    create_topic(broker, topic)
    send(broker, topic, wire.batch([b"old"]))
    delete_topic(broker, topic)
    create_topic(broker, topic)
    restart()
    with wire.connect(broker) as connection:
        assert wire.read_all(connection, topic, 0) == []
    assert send(broker, topic, wire.batch([b"new"])) == (0, 0)
    restart()
    with wire.connect(broker) as connection:
        assert wire.read_all(connection, topic, 0) == [(0, b"new")]


def test_idempotent_producers_are_remembered(broker: KafscaleBroker, restart: Restart) -> None:
    topic = unique_name()
    create_topic(broker, topic)
    with wire.connect(broker) as connection:
        producer_id, _ = wire.init_producer_id(connection)

    def send_sequence(sequence: int, epoch: int) -> tuple[int, int]:
        records = wire.batch([b"x"] * 2, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
        return send(broker, topic, records)

    for n in range(8):  # first in an epoch that is over at the end
        assert send_sequence(2 * n, 0) == (0, 2 * n)
    for n in range(8):
        assert send_sequence(2 * n, 1) == (0, 16 + 2 * n)
    restart()
    assert send_sequence(14, 1) == (0, 30)  # the last one again: its first answer
    assert send_sequence(6, 1) == (0, 22)  # the fifth from the end, too
    assert send_sequence(18, 1) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send_sequence(16, 0) == (INVALID_PRODUCER_EPOCH, -1)
    assert send_sequence(16, 1) == (0, 32)
    with wire.connect(broker) as connection:
        assert len(wire.read_all(connection, topic, 0)) == 34
        assert wire.init_producer_id(connection)[0] != producer_id


@pytest.mark.parametrize(
    "sealing", [pytest.param({}, id="in the journal"), pytest.param(SEALED_SOON, id="sealed")]
)
def test_an_acknowledged_record_is_in_the_files_after_a_kill(
    tmp_path: Path, request: pytest.FixtureRequest, sealing: dict[str, Any]
) -> None:
    """Killed right after its answer, or with its segment: the files alone, with no further start, have the record."""
    broker = KafscaleBroker(tmp_path, flush_interval_ms=0, **sealing)
    request.addfinalizer(broker.close)
    broker.start()
    create_topic(broker, "t")
    acknowledged = []
    with wire.connect(broker) as connection:
        for n, acks in enumerate([-1, 1, -1, 1]):
            answer = wire.produce(connection, "t", 0, wire.batch([b"%d" % n]), acks=acks)
            acknowledged.append((answer.base_offset, b"%d" % n))
    if sealing:
        wait_until(lambda: any(broker.data_folder.rglob("*.index")), "a segment with its index")
    broker.kill9()
    files = audit(broker.data_folder)
    assert [(record.offset, record.value) for record in files.records("t", 0)] == acknowledged
    assert not any(segment.lacks_index for segment in files.segments)
    assert any(not segment.is_slice for segment in files.segments) == bool(sealing)


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_tools_see_all_that_is_acknowledged_when_no_broker_runs(start_broker: StartBroker, end: str) -> None:
    """Once: fsck saw what leaders had reported of their journals, up to 0.1 s less than they had acknowledged."""
    broker = start_broker(flush_interval_ms=0, **NEVER_SEALED)
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        for n in range(5):
            assert wire.produce(connection, "t", 0, wire.batch([b"x"])).base_offset == n
    getattr(broker, end)()
    status, fields = fsck(broker)
    assert (status, problems(fields)) == (CLEAN, [])
    [partition] = fields["partitions"]
    assert (partition["records"], partition["log_end_offset"]) == (5, 5)


def test_a_clean_stop_leaves_no_record_behind_the_journal(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=0, **NEVER_SEALED)
    create_topic(broker, "t", 3)
    with wire.connect(broker) as connection:
        for index in range(3):
            for _ in range(index):
                wire.produce(connection, "t", index, wire.batch([b"x"]))
    broker.stop()

    async def stored() -> list[PartitionRecord]:
        reader = await SqliteReader.open(broker.data_folder / "metadata.db")
        items = (await reader.range(keys.partitions("t"))).items
        await reader.close()
        return [decode_partition_record(item.key, item.value) for item in items]

    found = asyncio.run(stored())
    assert [(record.log_end_offset, record.journal) for record in found] == [(0, None), (1, None), (2, None)]
