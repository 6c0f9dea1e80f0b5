"""Ten thousand flushes of one record become a handful of segments, while real clients write and read."""

import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import KafscaleBroker, running_broker
from tests.support.librdkafka import assigned_consumer, producer, take
from tests.support.metrics_page import scrape
from tests.support.nightly import by_day
from tests.support.sealing import SEALED_SOON, wait_until_sealed
from tests.support.waiting import PATIENCE_SEC, wait_until

COUNT = by_day(400, by_night=10_000)
HANDFUL = 16
PARTS = 8
"""Records are sealed so often, at least, that there is something to merge, however fast the machine is."""


def value(number: int) -> bytes:
    return b"value %d" % number


def write(broker: KafscaleBroker, errors: list[object]) -> None:
    """One record in a request, and one request at a time: every record is flushed by itself.

    Not all at once: each part is sealed before the next one.
    """
    client = producer(broker, max_in_flight=1, batch_num_messages=1, linger_ms=0)

    def report(error: object, message: Message) -> None:
        if error is not None:
            errors.append(error)

    for number in range(COUNT):
        client.produce("events", value(number), partition=0, on_delivery=report)
        client.poll(0)
        if (number + 1) % (COUNT // PARTS) == 0:
            assert client.flush(120) == 0
            wait_until_sealed(broker)
    assert client.flush(120) == 0


def read(broker: KafscaleBroker) -> list[tuple[int | None, bytes | None]]:
    with assigned_consumer(broker, "events") as consumer:
        return [
            (message.offset(), message.value())
            for message in take(consumer, COUNT, timeout_s=2 * PATIENCE_SEC)
        ]


def gets(broker: KafscaleBroker) -> float:
    """Requests that read from the object store, whoever of the broker made them."""
    counts = scrape(broker).by_label("kafscale_object_store_duration_seconds_count", "operation")
    return sum(counts.get((operation,), 0) for operation in ("get", "get_range", "read_into"))


def all_is_sealed_and_merged(broker: KafscaleBroker) -> bool:
    page = scrape(broker)
    waiting = page.value("kafscale_seal_debt_slices") + page.value("kafscale_merge_debt_segments")
    return waiting == 0 and page.value("kafscale_merges_total", outcome="published") > 0


def test_many_flushes_of_one_record_become_a_handful(tmp_path: Path) -> None:
    expected = [(number, value(number)) for number in range(COUNT)]
    errors: list[object] = []
    settings: dict[str, Any] = {
        "flush_interval_ms": 0,
        "local_fsync": "false",
        "merge_check_interval_ms": 250,
        "merge_min_segments": 2,
        **SEALED_SOON,
    }
    with running_broker(tmp_path, **settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("events", 1, 1)])["events"].result(PATIENCE_SEC)
        writing = threading.Thread(target=write, args=(broker, errors), name="writes")
        writing.start()
        found = read(broker)  # at the log's end all the time
        writing.join()
        assert errors == []
        assert found == expected
        wait_until(
            lambda: all_is_sealed_and_merged(broker), "all is sealed, and all but the newest merged", 120
        )
        assert scrape(broker).value("kafscale_merges_total", outcome="failed") == 0
        broker.stop()
        broker.settings = {**settings, "merge_bytes_per_sec": 0}
        broker.start()
        before = gets(broker)
        assert read(broker) == expected
        assert gets(broker) - before <= HANDFUL + 1  # and a checkpoint
