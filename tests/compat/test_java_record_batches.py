"""Kafka's own record classes read the batches that this project compresses, builds and converts."""

import base64
import subprocess
from pathlib import Path

import pytest

from kafscale.protocol.compression import CODECS
from kafscale.protocol.legacy_records import convert_message_set
from kafscale.protocol.record_batch import compress_into, read_header, stamp, stamp_log_append_time
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.compat import tools
from tests.support.java import java_command
from tests.support.waiting import PATIENCE_SEC

BATCHES = Path(__file__).resolve().parents[1] / "golden/record_batches"
NOW_MS = 1_790_000_000_000
# Several blocks of 64 KiB, nulls, headers, and one value that does not compress.
RECORDS = [
    Record(
        100 + number,
        NOW_MS + number,
        None if number % 3 == 0 else b"key-%d" % number,
        None if number % 50 == 7 else b"value-%d " % number * 100,
        (("trace", b"t"), ("none", None)) if number % 5 == 0 else (),
    )
    for number in range(300)
] + [Record(400, NOW_MS + 400, None, bytes(range(256)) * 300)]


@pytest.fixture(autouse=True, scope="module")
def _needs_java() -> None:
    reason = tools.java_missing()
    if reason:
        pytest.skip(reason)


def read_by_java(folder: Path, files: dict[str, bytes]) -> list[str]:
    """The output of RecordBatches.java for all files."""
    paths = []
    for name, content in files.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    command = java_command(str(BATCHES / "RecordBatches.java"), "read", *map(str, paths))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SEC)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def lines_of(records: list[Record]) -> list[str]:
    """The output of RecordBatches.java for these records."""

    def text(data: bytes | None) -> str:
        return "null" if data is None else "b64:" + base64.b64encode(data).decode()

    return [
        " ".join(
            [
                str(record.offset),
                str(record.timestamp_ms),
                text(record.key),
                text(record.value),
                *(f"{name}={text(value)}" for name, value in record.headers),
            ]
        )
        for record in records
    ]


def test_java_reads_our_batches(tmp_path: Path) -> None:
    plain = encode_batch(RECORDS)
    files = {"built": plain}
    expected = lines_of(RECORDS)
    for codec in CODECS[1:]:
        output = bytearray(len(plain))
        written = compress_into(memoryview(plain), read_header(plain, 0), codec, memoryview(output))
        assert 0 < written < len(plain)
        stamp(output, 0, 5000, 3)
        files[codec.type_name] = bytes(output[:written])
        expected += lines_of([record._replace(offset=record.offset + 4900) for record in RECORDS])
    timed = bytearray(files["snappy"])
    stamp_log_append_time(timed, 0, NOW_MS + 999)
    files["timed"] = bytes(timed)
    expected += lines_of(
        [record._replace(offset=record.offset + 4900, timestamp_ms=NOW_MS + 999) for record in RECORDS]
    )
    assert read_by_java(tmp_path, files) == expected


def test_java_reads_a_converted_message_set_as_it_reads_the_set(tmp_path: Path) -> None:
    sets = {path.name: path.read_bytes() for path in sorted(BATCHES.glob("java-v[01]-*.batch"))}
    assert len(sets) == 8
    converted = {name: convert_message_set(memoryview(data), 100_000, 100_000) for name, data in sets.items()}
    assert read_by_java(tmp_path, converted) == read_by_java(tmp_path, sets)
