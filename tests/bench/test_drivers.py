"""The raw driver and the no-op ceiling, against each other: replies are counted and errors are seen."""

from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest

from bench.frames import drive_frames
from bench.noop_broker import NoOp
from bench.payloads import LOG, RANDOM, record_pool
from bench.process import memory, process_tree_cpu
from bench.specs import FramesSpec
from bench.wire import WireError, produce_error_position, produce_frame, produce_reply


@pytest.fixture
def ceiling(tmp_path: Path) -> Iterator[NoOp]:
    broker = NoOp(tmp_path)
    broker.start()
    try:
        yield broker
    finally:
        broker.remove()


def _spec(broker: NoOp, *, records_per_frame: int, in_flight_frames: int) -> FramesSpec:
    return FramesSpec(
        host="127.0.0.1",
        port=broker.port,
        topic="noop",
        partitions=3,
        record_bytes=100,
        records_per_frame=records_per_frame,
        payload=RANDOM,
        in_flight_frames=in_flight_frames,
        warmup_seconds=0.05,
        seconds=1.0,  # a loaded machine stands still for half of it
        broker_pids=[broker.pid],
    )


@pytest.mark.parametrize(
    ("records_per_frame", "in_flight_frames"),
    [
        (1, 5_000),
        pytest.param(1, 1, marks=pytest.mark.nightly),
        pytest.param(9_000, 4, marks=pytest.mark.nightly),
    ],
)
def test_the_raw_driver_gets_a_reply_for_every_frame(
    ceiling: NoOp, records_per_frame: int, in_flight_frames: int
) -> None:
    window = drive_frames(
        _spec(ceiling, records_per_frame=records_per_frame, in_flight_frames=in_flight_frames)
    )
    assert window.total_records >= window.records > 0
    assert window.records % records_per_frame == 0
    assert window.payload_bytes == window.records * 100


def test_noop_broker_echoes_correlation_id_of_split_frames(ceiling: NoOp) -> None:
    frame = produce_frame("noop", 0, [b"x" * 900_000], correlation_id=77)
    with ceiling.client() as client:
        for _ in range(20):
            assert client.exchange(frame) == produce_reply(77)


def test_the_process_readings_are_of_the_broker(ceiling: NoOp) -> None:
    drive_frames(_spec(ceiling, records_per_frame=1, in_flight_frames=1_000))
    assert process_tree_cpu(ceiling.pid).total > 0
    held = memory(ceiling.pid)
    assert 0 < held.private_bytes <= held.resident_bytes <= held.peak_resident_bytes


def test_an_error_code_in_a_reply_is_an_error() -> None:
    reply = bytearray(produce_reply(1))
    position = produce_error_position(bytes(reply))
    reply[position + 1] = 87
    with pytest.raises(WireError, match="87"):
        produce_error_position(bytes(reply))


def test_only_the_log_payload_is_compressible() -> None:
    def snappy_ratio(kind: str) -> float:
        values = b"".join(record_pool(kind, 1024)[:512])
        return len(values) / len(bytes(cramjam.snappy.compress_raw(values)))

    assert snappy_ratio(RANDOM) < 1.01
    assert 2 < snappy_ratio(LOG) < 8
