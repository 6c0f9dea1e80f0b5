"""`kafscale dump` prints batches and records line for line as Kafka's DumpLogSegments does."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafscale.commands.cli import main
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.protocol.compression import CODECS
from kafscale.protocol.record_batch import DELETE_HORIZON_FLAG, stamp, write_crc
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import GOLDEN_BUCKET, segment_of, stored_segments
from tests.support.java import run_tool

pytestmark = pytest.mark.usefixtures("java_processes")

DUMP_LOG_SEGMENTS = "kafka.tools.DumpLogSegments"
RECORD_BATCHES = Path(__file__).resolve().parents[1] / "golden" / "record_batches"
NOW_MS = 1_790_000_000_000


def records(base_offset: int, count: int) -> list[Record]:
    return [
        Record(
            base_offset + number * 2,
            NOW_MS + number,
            None if number % 3 == 0 else f"key {number} ž".encode(),
            None if number % 5 == 4 else b'{"value": "%d\\n"}\t' % number * 30,
            (("trace", b"t"), ("none", None)) if number % 4 == 0 else (),
        )
        for number in range(count)
    ]


def every_kind_of_batch() -> list[bytes]:
    """Ascending, all codecs, producers with and without sequence, and what only a broker writes."""
    made = [encode_batch(records(number * 100, 20), codec=codec) for number, codec in enumerate(CODECS)]
    made.append(encode_batch(records(500, 3), log_append_time_ms=NOW_MS + 777, partition_leader_epoch=12))
    made.append(
        encode_batch(
            records(600, 3),
            producer_id=2**40,
            producer_epoch=7,
            base_sequence=2**31 - 2,
            is_transactional=True,
        )
    )
    for offset, kind in ((700, 0), (701, 1), (702, 9)):
        marker = Record(offset, NOW_MS, bytes((0, 0, 0, kind)), b"\0\0\0\0\0\x2a")
        made.append(encode_batch([marker], is_control=True, is_transactional=True, producer_id=5))
    horizon = bytearray(encode_batch(records(800, 2)))
    horizon[22] |= DELETE_HORIZON_FLAG
    write_crc(horizon, 0)
    made.append(bytes(horizon))
    made.append(encode_batch([Record(900, -1, b"", b"")]))
    for number, path in enumerate(sorted(RECORD_BATCHES.glob("java-v2-*.batch"))):
        by_java = bytearray(path.read_bytes())
        stamp(by_java, 0, 1000 + number * 100_000, 0)
        made.append(bytes(by_java))
    return made


def by_kafka(folder: Path, bodies: Sequence[bytes], *arguments: str) -> list[str]:
    """Its lines for all logs, each begun at offset 0 as far as it knows."""
    logs = []
    for number, body in enumerate(bodies):
        logs.append(folder / str(number) / "00000000000000000000.log")
        logs[-1].parent.mkdir()
        logs[-1].write_bytes(body)
    # A process of its own: Scala's console goes on writing where it first wrote.
    lines = run_tool(DUMP_LOG_SEGMENTS, "--files", ",".join(map(str, logs)), *arguments).ok().splitlines()
    around = [line for line in lines if not line.startswith(("baseOffset: ", "| offset: "))]
    assert around == [line for log in logs for line in (f"Dumping {log}", "Log starting offset: 0")]
    return [line for line in lines if line not in around]


def by_us(folder: Path, segment: bytes, *arguments: str) -> Sequence[str]:
    """Our lines of batches and records, with positions as in a file of batches alone."""
    path = folder / "segment.kfs"
    path.write_bytes(segment)
    lines = CliRunner().invoke(main, ["dump", *arguments, str(path)]).stdout.splitlines()
    return [
        re.sub(r" position: (\d+) ", lambda found: f" position: {int(found[1]) - HEADER_SIZE} ", line)
        for line in lines
        if line.startswith(("baseOffset: ", "| offset: "))
    ]


def test_every_kind_of_batch_and_record(tmp_path: Path) -> None:
    batches = every_kind_of_batch()
    expected = by_kafka(tmp_path, [b"".join(batches)], "--print-data-log")
    found = by_us(tmp_path, segment_of(batches), "--records")
    assert len(found) > len(batches) + 100
    assert found == expected


def test_damaged_batches(tmp_path: Path) -> None:
    batches = every_kind_of_batch()
    batches[2] = batches[2][:80] + bytes([batches[2][80] ^ 1]) + batches[2][81:]
    expected = by_kafka(tmp_path, [b"".join(batches)])
    found = by_us(tmp_path, segment_of(batches), "--verify")
    assert found == expected
    assert [line.endswith("isvalid: false") for line in found] == [
        number == 2 for number in range(len(batches))
    ]


def test_what_another_writer_stored(tmp_path: Path) -> None:
    segments = [segment for _, segment, _ in stored_segments(GOLDEN_BUCKET)]
    bodies = [segment[HEADER_SIZE:-FOOTER_SIZE] for segment in segments]
    found = [line for segment in segments for line in by_us(tmp_path, segment, "--records")]
    assert found == by_kafka(tmp_path, bodies, "--print-data-log")
