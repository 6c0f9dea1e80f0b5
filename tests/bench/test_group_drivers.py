"""The raw drivers of groups against a broker: members that join, beat, fetch and acknowledge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.consumer_members import drive_consumer_group
from bench.group_wire import topic_id
from bench.kafscale_broker import Kafscale
from bench.share_members import drive_share_group
from bench.share_wire import acquired_ranges
from bench.specs import ConsumerGroupSpec, Shared, ShareGroupSpec, result_from_json, to_json
from bench.wire import WireError, produce_frame
from kafscale.protocol.share_fetch import (
    AcquiredRange,
    SharedPartition,
    SharedTopic,
    encode_share_fetch_response,
)

_RECORDS = 3 * 40 * 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafscale]:
    folder: Path = tmp_path_factory.mktemp("bench")
    started = Kafscale(folder, {"KAFSCALE_FLUSH_INTERVAL_MS": "0"})
    started.start()
    try:
        yield started
    finally:
        started.remove()


def _written(broker: Kafscale, topic: str) -> str:
    with broker.client() as client:
        client.create_topic(topic, 3)
        frames = [
            produce_frame(topic, index % 3, [b"v" * 100] * 50, correlation_id=1) for index in range(120)
        ]
        client.exchange_all(frames)
    return topic


def _share_spec(broker: Kafscale, topic: str, *, releases: bool, seconds: float = 60.0) -> ShareGroupSpec:
    return ShareGroupSpec(
        host=broker.host,
        port=broker.port,
        group=f"{topic}-group",
        topic=topic,
        partitions=3,
        records=_RECORDS,
        record_bytes=100,
        members=5,
        max_records=100,
        releases_every_other=releases,
        warmup_seconds=0.0,
        seconds=seconds,
        broker_pids=[broker.pid],
    )


@pytest.mark.parametrize("releases", [False, True])
def test_members_of_a_share_group_accept_records_once(broker: Kafscale, releases: bool) -> None:
    topic = _written(broker, f"shared-{releases}")
    shared = drive_share_group(_share_spec(broker, topic, releases=releases))
    # Nearly all: the window closes before members find nothing.
    assert _RECORDS * 0.98 <= shared.window.total_records <= _RECORDS
    # Without those that were sent before the window.
    assert _RECORDS / 1000 <= len(shared.milliseconds) <= shared.acknowledgements
    result = result_from_json(to_json(shared))
    assert isinstance(result, Shared)
    assert result == shared


def test_consumer_members_get_their_targets_and_beat(broker: Kafscale) -> None:
    with broker.client() as client:
        client.create_topic("consumed", 12)
    beats = drive_consumer_group(
        ConsumerGroupSpec(
            host=broker.host,
            port=broker.port,
            group="consumers",
            topic="consumed",
            partitions=12,
            members=6,
            interval_seconds=0.05,
            join_timeout_seconds=60.0,
            paced_per_second=200.0,
            warmup_seconds=0.05,
            settle_seconds=0.01,
            seconds=0.2,
            broker_pids=[broker.pid],
        )
    )
    assert beats.joined.records == 6
    assert beats.beats_of_joins >= 6
    assert beats.fast.total_records >= 6
    assert beats.paced.records == len(beats.milliseconds) == 40


def test_acquired_ranges_are_read_past_records_and_messages() -> None:
    partitions = [
        SharedPartition(0, records=(b"r" * 300,), records_size_bytes=300, acquired=(AcquiredRange(5, 9, 1),)),
        SharedPartition(2, acquired=(AcquiredRange(1, 1, 2), AcquiredRange(3, 3, 2))),
    ]
    frame = b"".join(
        encode_share_fetch_response(1, 0, "a message", 30_000, [SharedTopic(b"i" * 16, partitions)])
    )
    assert acquired_ranges(frame) == [(0, 5, 9, 1), (2, 1, 1, 2), (2, 3, 3, 2)]


@pytest.mark.parametrize("where", ["request", "partition", "acknowledgement"])
def test_an_error_in_a_share_fetch_reply_is_an_error(where: str) -> None:
    partition = SharedPartition(
        7,
        error_code=6 if where == "partition" else 0,
        acknowledge_error_code=6 if where == "acknowledgement" else 0,
    )
    topics = [SharedTopic(b"i" * 16, [partition])]
    frame = b"".join(encode_share_fetch_response(1, 6 if where == "request" else 0, None, 0, topics))
    with pytest.raises(WireError, match="error code 6"):
        acquired_ranges(frame)


def test_a_topic_that_is_not_there_has_no_id(broker: Kafscale) -> None:
    with broker.client() as client, pytest.raises(WireError, match="error code 3"):
        topic_id(client, "nobody-made-it")
