"""The raw drivers against a broker: what they say was fetched, answered and acknowledged is true."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.fetch_frames import drive_fetch_frames, whole_batches
from bench.kafscale_broker import Kafscale
from bench.noop_broker import NoOp
from bench.paced import drive_paced
from bench.polls import drive_polls
from bench.repeat import drive_repeat
from bench.specs import FetchFramesSpec, PacedSpec, PollsSpec, Repeated, RepeatSpec
from bench.wire import (
    FetchPlace,
    WireError,
    batch,
    check_fetch_reply,
    fetch_frame,
    fetched_records,
    metadata_frame,
    produce_frame,
)
from tests.support.waiting import wait_until

_BATCH = batch([b"v" * 100] * 50)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafscale]:
    folder: Path = tmp_path_factory.mktemp("bench")
    started = Kafscale(folder, {"KAFSCALE_FLUSH_INTERVAL_MS": "0", "KAFSCALE_COMPRESSION_CODEC": "producer"})
    started.start()
    try:
        yield started
    finally:
        started.remove()


def _topic(broker: Kafscale, name: str, partitions: int) -> str:
    with broker.client() as client:
        client.create_topic(name, partitions)
    return name


def _write(broker: Kafscale, topic: str, partition: int, batches: int) -> None:
    with broker.client() as client:
        for number in range(batches):
            client.exchange(produce_frame(topic, partition, [b"v" * 100] * 50, correlation_id=number))


def _fetch_spec(broker: Kafscale | NoOp, topic: str, start_offsets: list[int]) -> FetchFramesSpec:
    return FetchFramesSpec(
        host=broker.host,
        port=broker.port,
        topic=topic,
        start_offsets=start_offsets,
        volume_bytes=1 << 20,
        fetch_bytes=2 * len(_BATCH),
        connections=2,
        requests_ahead=2,
        warmup_seconds=0.05,
        seconds=0.2,
        broker_pids=[broker.pid],
    )


def test_fetched_bytes_are_those_of_whole_batches(broker: Kafscale) -> None:
    topic = _topic(broker, "fetched", 2)
    for partition in range(2):
        _write(broker, topic, partition, 5)
    window = drive_fetch_frames(_fetch_spec(broker, topic, [0, 100]))
    assert window.total_records > 0
    assert window.total_records % len(_BATCH) == 0
    assert window.payload_bytes == window.records > 0


def test_the_ceiling_answers_the_raw_consumer_too(tmp_path: Path) -> None:
    ceiling = NoOp(tmp_path)
    ceiling.start()
    try:
        window = drive_fetch_frames(_fetch_spec(ceiling, "noop", [0, 0, 0]))
    finally:
        ceiling.remove()
    assert window.payload_bytes > 1_000_000


def test_a_partition_that_has_nothing_to_fetch_is_an_error(broker: Kafscale) -> None:
    topic = _topic(broker, "nothing", 1)
    with pytest.raises(WireError, match="nothing to fetch"):
        drive_fetch_frames(_fetch_spec(broker, topic, [0]))


def test_a_batch_that_was_cut_off_is_not_counted() -> None:
    assert whole_batches(_BATCH + _BATCH) == (2 * len(_BATCH), 50)
    assert whole_batches(_BATCH + _BATCH[:-1]) == (len(_BATCH), 50)
    assert whole_batches(_BATCH[:20]) == (0, 0)


def test_paced_records_are_all_acknowledged_and_consumed(broker: Kafscale) -> None:
    topic = _topic(broker, "paced", 3)
    spec = PacedSpec(
        host=broker.host,
        port=broker.port,
        topic=topic,
        partitions=3,
        record_bytes=100,
        payload="random",
        per_second=200.0,
        connections=4,
        warmup_seconds=0.1,
        seconds=0.4,
    )
    acks = drive_paced(spec)
    assert acks.total_records == 100
    assert len(acks.milliseconds) == 80
    assert acks.milliseconds == sorted(acks.milliseconds)
    with broker.client() as client:
        ends = [client.log_end_offset(topic, partition) for partition in range(3)]
    assert sum(ends) == 101  # with the one whose reply tells how long a reply is


def test_a_request_is_repeated_and_each_reply_timed(broker: Kafscale) -> None:
    topic = _topic(broker, "told", 7)
    spec = RepeatSpec(
        host=broker.host,
        port=broker.port,
        frame=metadata_frame([topic]).hex(),
        in_flight=3,
        warmup_seconds=0.0,
        seconds=0.2,
        broker_pids=[broker.pid],
    )

    def told_more_than_once() -> Repeated | None:
        told = drive_repeat(spec)
        assert told.window.total_records == len(told.milliseconds)
        return told if len(told.milliseconds) > spec.in_flight else None

    told = wait_until(told_more_than_once, "a window in which requests are repeated")
    assert told is not None
    with broker.client() as client:
        assert told.reply_bytes == len(client.exchange(metadata_frame([topic])))


@pytest.mark.parametrize("max_wait_ms", [0, 50, 30_000])
def test_idle_connections_stay_and_polls_end_at_max_wait(broker: Kafscale, max_wait_ms: int) -> None:
    topics = [_topic(broker, f"polled-{max_wait_ms}-{number}", 5) for number in range(2)]
    spec = PollsSpec(
        host=broker.host,
        port=broker.port,
        connections=12,
        topics=topics,
        topic_partitions=5,
        partitions_each=3,
        max_wait_ms=max_wait_ms,
        seconds=0.4,
        broker_pids=[broker.pid],
    )
    polled = drive_polls(spec)
    assert (polled.window.records > 12) == (max_wait_ms == 50)
    assert polled.resident_bytes_after > 0


def test_an_error_in_a_fetch_reply_is_an_error(broker: Kafscale) -> None:
    unknown = FetchPlace(topic="nobody-made-it", partition=0, offset=0)
    with broker.client() as client:
        reply = client.exchange(fetch_frame([unknown], max_bytes=1000, max_wait_ms=1))
    for look in (check_fetch_reply, fetched_records):
        with pytest.raises(WireError, match="error code 3"):
            look(reply)
