"""A segment larger than a signed 32-bit number of bytes can say, made by merging, and read at both ends.

By default the segment is small, and everything else the same; KAFSCALE_TEST_MERGED_BYTES says how large it is to
be. `make large-segment` makes one of more than 2 GiB.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from kafscale.formats.index import LARGE_VERSION, parse_index
from kafscale.formats.segment import FOOTER_SIZE, parse_footer, parse_header
from kafscale.log.life.merge_planner import NEWEST_LEFT
from kafscale.log.life.seal_planner import MOST_BYTES
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.java import run_tool
from tests.support.librdkafka import assigned_consumer, producer, take
from tests.support.sealing import SEALED_SOON, wait_until_sealed
from tests.support.waiting import PATIENCE_SEC, wait_until

MERGED_BYTES = int(os.environ.get("KAFSCALE_TEST_MERGED_BYTES", 12 * 2**20))
VALUE_BYTES = 64 * 1024

# What a broker may need beside its caches and buffers, however large the segments are.
MOST_MEMORY_BYTES = 300 * 2**20
SECONDS = 600.0


def value(number: int) -> bytes:
    """Compressible, and different for each number."""
    return (b"%012d " % number * (VALUE_BYTES // 13 + 1))[:VALUE_BYTES]


def fill(broker: KafscaleBroker, topic: str, count: int) -> None:
    def report(error: object, message: Message) -> None:
        assert error is None, error

    client = producer(broker, linger_ms=50, batch_size=1_000_000, queue_buffering_max_kbytes=64 * 1024)
    for number in range(count):
        while True:
            try:
                client.produce(topic, value(number), partition=0, on_delivery=report)
                break
            except BufferError:
                client.poll(1)
        # Now and then, so that there are many segments however fast the producer is.
        if (number + 1) % (MERGED_BYTES // 4 // VALUE_BYTES) == 0:
            assert client.flush(SECONDS) == 0
            wait_until_sealed(broker)
    assert client.flush(SECONDS) == 0


def segments(broker: KafscaleBroker) -> list[Path]:
    return list((broker.data_folder / "objects" / "default" / "events" / "0").glob("segment-*.kfs"))


def largest(broker: KafscaleBroker) -> Path:
    return max(segments(broker), key=lambda path: path.stat().st_size)


def read_one(broker: KafscaleBroker, offset: int) -> Message:
    with assigned_consumer(broker, "events", offset=offset) as consumer:
        return take(consumer, 1)[0]


def dumped(path: Path, offset: int) -> str:
    command = [str(Path(sys.executable).parent / "kafscale"), "dump", str(path)]
    options = ["--offset", str(offset), "--max-batches", "1", "--records"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_segment_bytes(broker: KafscaleBroker, size_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("segment.bytes", str(size_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "events", incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(PATIENCE_SEC)


def test_merged_large_segment_is_readable_at_both_ends(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "compression_codec": "producer",
        "flush_interval_ms": 20,
        "cache_size": "64MB",
        "buffer_bytes": "160MiB",
        "merge_target_bytes": "1MiB",
        "merge_bytes_per_sec": "4GiB",
        "local_fsync": "false",
        **SEALED_SOON,
    }
    # So much that what is left of the newest segments is more than what is to be merged; sealing makes none larger.
    count = (MERGED_BYTES + min(MERGED_BYTES, (NEWEST_LEFT + 1) * MOST_BYTES)) // VALUE_BYTES
    with running_broker(tmp_path, merge_check_interval_ms=86_400_000, **settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("events", 1, 1)])["events"].result(PATIENCE_SEC)
        run_tool(
            "org.apache.kafka.tools.FeatureCommand",
            *("--bootstrap-server", broker.bootstrap, "upgrade", "--feature", "kafscale.segment.format=2"),
        ).ok()
        set_segment_bytes(broker, 1 << 20 if MERGED_BYTES < MOST_BYTES else MOST_BYTES)
        fill(broker, "events", count)
        set_segment_bytes(broker, 2 * MERGED_BYTES)
        wait_until_sealed(broker)
        broker.stop()
        # All that can be merged is merged at once.
        together = len(segments(broker)) - NEWEST_LEFT
        broker.settings = {**settings, "merge_check_interval_ms": 200, "merge_min_segments": together}
        broker.start()
        wait_until(
            lambda: largest(broker).stat().st_size > MERGED_BYTES,
            f"a segment of more than {MERGED_BYTES} bytes",
            SECONDS,
        )
        wait_until(
            lambda: "kafscale_merged_segments_total 0" not in broker.http_get("/metrics")[1], "published"
        )
        path = largest(broker)
        size_bytes = path.stat().st_size
        with path.open("rb") as opened:
            header = parse_header(path.name, opened.read(32))
            opened.seek(-FOOTER_SIZE, os.SEEK_END)
            last_offset = parse_footer(path.name, opened.read()).last_offset
        index = parse_index("index", path.with_suffix(".index").read_bytes(), header.base_offset)
        assert index.version == LARGE_VERSION
        assert index.positions[-1] > size_bytes - 200 * (VALUE_BYTES + 200)
        for offset in (header.base_offset, last_offset // 2, last_offset):
            message = read_one(broker, offset)
            assert (message.offset(), message.value()) == (offset, value(offset))
            assert f"| offset: {offset} " in dumped(path, offset)
        assert broker.peak_memory_bytes() < MOST_MEMORY_BYTES
        print(
            f"merged segment of {size_bytes} bytes, offsets {header.base_offset} to {last_offset}; "
            f"most memory {broker.peak_memory_bytes() >> 20} MiB"
        )
