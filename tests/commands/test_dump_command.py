"""`kafscale dump`: what it prints of sound and damaged files, where it reads from, and its exit status."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.commands import dump_output
from kafscale.commands.cli import main
from kafscale.commands.dump import MOST_PROBLEMS_REPORTED
from kafscale.commands.dump_output import Lines, Progress
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index
from kafscale.formats.journal_entry import CellKind
from kafscale.formats.partition_record import ProducerRecord, SegmentReference
from kafscale.formats.partition_transactions import AbortedTransaction
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.segment import encode_footer, encode_header
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import GOLDEN_BUCKET, SAMPLE_BUCKET, batch, segment_of
from tests.support.s3_server import s3_server
from tests.support.waiting import PATIENCE_SEC
from tests.tools.journal_objects import entry_of, fence_of, slice_of
from tests.tools.recovery.recovery_bucket import batch as leader_batch
from tests.tools.recovery.recovery_bucket import marker

DUMPS = Path(__file__).parents[1] / "golden" / "dumps"
KAFSCALE = str(Path(sys.executable).with_name("kafscale"))
BASE = 1000
NAME = f"segment-{BASE:020d}"
BATCHES = [
    batch(BASE, 3),
    batch(BASE + 3, 2),
    encode_batch(
        [
            Record(BASE + 5, 7, b"\x1b[31m", b"\xff\x00", (("h\x07", None),)),
            Record(BASE + 6, 8, None, None),
        ],
        producer_id=9,
        producer_epoch=1,
        base_sequence=2**31 - 1,
        log_append_time_ms=77,
    ),
    encode_batch(
        [Record(BASE + 7, 9, b"\0\0\0\1", b"\0\0\0\0\0\4")],
        is_control=True,
        is_transactional=True,
        producer_id=9,
    ),
]
SEGMENT = segment_of(BATCHES)
LAID = [
    (header.base_offset, 32 + sum(map(len, BATCHES[:number])), header.record_count)
    for number, header in enumerate(read_header(data, 0) for data in BATCHES)
]


def dump(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(main, ["dump", *map(str, arguments)], env=environment)


def dump_json(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump("--json", *arguments).stdout.splitlines()]


def lines_with(result: Result, start: str) -> list[str]:
    return [line for line in result.stdout.splitlines() if line.startswith(start)]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of our own, and its index of version 2 beside it."""
    path = tmp_path / f"{NAME}.kfs"
    path.write_bytes(SEGMENT)
    path.with_suffix(".index").write_bytes(build_index(LAID, 2, version=LARGE_VERSION))
    return path


def golden_name(path: Path) -> str:
    topic, base_offset = path.parts[-3], int(path.stem.removeprefix("segment-"))
    return f"{topic}-{base_offset}{path.suffix}.txt"


@pytest.mark.parametrize("path", sorted(GOLDEN_BUCKET.rglob("segment-*")), ids=golden_name)
def test_a_stored_file_is_dumped_as_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN_BUCKET)
    result = dump("--verify", "--records", path.relative_to(GOLDEN_BUCKET))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (DUMPS / golden_name(path)).read_text()


@pytest.mark.parametrize("version", [LEGACY_VERSION, LARGE_VERSION])
def test_our_own_files_are_dumped_as_ever(
    segment: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    segment.with_suffix(".index").write_bytes(build_index(LAID, 2, version=version))
    monkeypatch.chdir(segment.parent)
    result = dump("--verify", "--records", segment.name, f"{NAME}.index")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (DUMPS / f"own-index-version-{version}.txt").read_text()


def test_every_file_of_another_writers_bucket_is_sound() -> None:
    paths = sorted(SAMPLE_BUCKET.rglob("segment-*"))
    result = dump("--verify", *paths)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(lines_with(result, "Dumping ")) == len(paths) == len(lines_with(result, "verified: ")) == 116


def test_checksums_are_looked_at_only_when_that_is_wanted(segment: Path) -> None:
    assert "isvalid" not in dump(segment).stdout
    assert {line.rpartition(" ")[2] for line in lines_with(dump("--verify", segment), "baseOffset")} == {
        "true"
    }


def test_nothing_in_a_record_reaches_the_terminal_as_it_is(segment: Path) -> None:
    result = dump("--records", segment)
    assert r"headerKeys: [h\x07] key: escaped:\x1b[31m payload: hex:ff00" in result.stdout
    assert "\x1b" not in result.stdout


def test_json_is_an_object_a_line(segment: Path) -> None:
    lines = dump_json("--verify", "--records", segment, segment.with_suffix(".index"))
    kinds = [line["type"] for line in lines]
    assert kinds == [
        "file", "segmentHeader",
        "batch", "record", "record", "record", "batch", "record", "record", "batch", "record", "record",
        "batch", "record", "segmentFooter", "verified",
        "file", "indexHeader", "entry", "entry", "entry", "entry", "verified",
    ]  # fmt: skip
    record = lines[10]
    assert (record["key"], record["valueHex"], record["headers"]) == (
        "\x1b[31m",
        "ff00",
        [{"key": "h\x07", "value": None}],
    )
    assert (lines[13]["controlType"], lines[13]["coordinatorEpoch"]) == ("COMMIT", 4)
    assert lines[9]["isvalid"] is True and lines[9]["timestampType"] == "LogAppendTime"
    assert lines[15] == {
        "type": "verified", "file": str(segment), "isWhole": True,
        "batches": 4, "records": 8, "entries": 0, "problems": 0,
    }  # fmt: skip


def test_a_damaged_file_is_dumped_as_far_as_it_goes(segment: Path) -> None:
    damaged = bytearray(SEGMENT)
    damaged[40] ^= 1  # the length of the first batch
    other = segment.with_name("segment-00000000000000000000.kfs")
    other.write_bytes(damaged)
    result = dump("--verify", other, segment)
    assert result.exit_code == 1
    assert f"kafscale: {other}: batch at position 32: its " in result.stderr
    assert f"kafscale: {other}: footer: the body's CRC-32C is " in result.stderr
    assert len(lines_with(result, "baseOffset: ")) == 4  # of the second file
    problems = [line for line in dump_json(other) if line["type"] == "problem"]
    assert problems[0]["file"] == str(other) and problems[0]["problem"].startswith("batch at position 32")


def test_an_index_that_does_not_fit_its_segment_is_damage(segment: Path) -> None:
    index = segment.with_suffix(".index")
    index.write_bytes(build_index([(BASE, 32, 1), (BASE + 3, 40, 1)], 1))
    assert dump(index).exit_code == 0
    result = dump("--verify", index)
    assert result.exit_code == 1
    assert "entry of offset 1003 at position 40: no batch starts there" in result.stderr
    segment.unlink()
    alone = dump("--verify", index)
    assert alone.exit_code == 0
    assert "note: there is no segment beside it" in alone.stderr


def test_a_part_is_found_through_the_index(segment: Path) -> None:
    result = dump("--verify", "--offset", "1004", "--max-batches", "1", segment)
    assert [line.split()[1] for line in lines_with(result, "baseOffset")] == ["1003"]
    assert lines_with(result, "verified in part: batches: 1 ")
    segment.with_suffix(".index").unlink()
    assert dump("--offset", "1004", "--max-batches", "1", segment).stdout.count("baseOffset") == 1


def test_checkpoints_are_dumped_too(tmp_path: Path) -> None:
    reference = SegmentReference(
        base_offset=0, last_offset=9, record_count=10, leader_epoch=2, size_bytes=500, max_timestamp_ms=5
    )
    merged = SegmentReference(
        base_offset=10, last_offset=29, record_count=20, leader_epoch=2, size_bytes=900, max_timestamp_ms=6,
        object_key="n/t/0/merged.kfs",
    )  # fmt: skip
    producer = ProducerRecord(
        producer_id=7, producer_epoch=1, last_timestamp_ms=6, batches=(ProducerBatch(0, 9, 10),)
    )
    aborted = AbortedTransaction(producer_id=7, first_offset=3, last_offset=12, last_stable_offset=5)
    checkpoint = Checkpoint(
        end_offset=30, segments=(reference, merged), producers=(producer,), aborted=(aborted,)
    )
    path = tmp_path / "00000000000000000030-2-a.ckpt"
    path.write_bytes(encode_checkpoint(checkpoint))
    result = dump("--verify", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1:] == [
        f"checkpoint: endOffset: 30 segments: 2 producers: 1 aborted: 1 fileSize: {path.stat().st_size}",
        "baseOffset: 0 lastOffset: 9 count: 10 partitionLeaderEpoch: 2 size: 500 maxTimestamp: 5",
        "baseOffset: 10 lastOffset: 29 count: 20 partitionLeaderEpoch: 2 size: 900 maxTimestamp: 6 start: 0 "
        "key: n/t/0/merged.kfs",
        "producerId: 7 producerEpoch: 1 lastTimestamp: 6 batches: [0-9@10]",
        "aborted: producerId: 7 firstOffset: 3 lastOffset: 12 lastStableOffset: 5",
        "verified: batches: 0 records: 0 entries: 2 problems: 0",
    ]
    assert [line["type"] for line in dump_json(path)] == [
        "file", "checkpoint", "reference", "reference", "producer", "aborted",
    ]  # fmt: skip
    path.write_bytes(encode_checkpoint(checkpoint)[:-1] + b"?")
    assert dump(path).exit_code == 1


def test_a_file_is_what_it_begins_like(segment: Path, tmp_path: Path) -> None:
    other = tmp_path / "copy"
    other.write_bytes(SEGMENT)
    assert dump("--verify", other).exit_code == 0
    misnamed = tmp_path / "segment.index"
    misnamed.write_bytes(SEGMENT)
    result = dump(misnamed)
    assert result.exit_code == 1
    assert "it is named as .index and begins as .kfs" in result.stderr
    assert len(lines_with(result, "baseOffset")) == 4


def test_unreadable_targets_are_a_line_each_beside_the_others(segment: Path, tmp_path: Path) -> None:
    text = tmp_path / "note.txt"
    text.write_bytes(b"hello")
    os.mkfifo(tmp_path / "pipe.kfs")
    empty = tmp_path / "empty"
    empty.touch()
    targets: list[str | Path] = [
        tmp_path / "none.kfs", tmp_path, text, tmp_path / "pipe.kfs", empty, "/dev/null",
        "s3://bucket", "s3://bucket/", "s3://bucket/a//b", "http://host/x.kfs", "file://host/x.kfs", "a\x1b[2J.kfs",
        "s3:///key",
    ]  # fmt: skip
    result = dump(*targets, segment)
    assert result.exit_code == 2
    assert len(lines_with(result, "baseOffset")) == 4
    assert len(result.stderr.splitlines()) == len(targets)
    assert all(line.startswith("kafscale: ") for line in result.stderr.splitlines())
    assert (
        "note.txt: it is no segment, index, checkpoint, entry or gathered object: it begins with b'hell'"
        in result.stderr
    )
    assert r"a\x1b[2J.kfs: there is no such file" in result.stderr
    assert lines_with(result, "Dumping ") == [f"Dumping {segment}"]


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    loop = tmp_path / "loop.kfs"
    loop.symlink_to(loop)
    result = dump(loop)
    assert (result.exit_code, result.stderr) == (2, f"kafscale: {loop}: Too many levels of symbolic links\n")


@pytest.mark.parametrize(
    "arguments", [[], ["--offset", "-1", "x"], ["--max-batches", "0", "x"], ["--no", "x"]]
)
def test_options_that_are_not_legal(arguments: Sequence[str]) -> None:
    assert dump(*arguments).exit_code == 2


def test_file_urls(segment: Path) -> None:
    odd = segment.with_name("with space.kfs")
    segment.rename(odd)
    assert dump("--verify", odd.as_uri()).exit_code == 0


def test_problems_without_end_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "segment.index"
    header, first = build_index(LAID[:1])[:16], build_index(LAID[:1])[16:]
    path.write_bytes(header[:6] + (501).to_bytes(4, "big") + header[10:] + first + bytes(12 * 500))
    result = dump(path)
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert len(told) == MOST_PROBLEMS_REPORTED + 1
    assert told[-1] == f"kafscale: {path}: {500 - MOST_PROBLEMS_REPORTED} more problems"


def test_objects_are_read_with_the_settings_of_the_brokers(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        folder = server.bucket_folder / "default" / "t" / "0"
        folder.mkdir(parents=True)
        (folder / f"{NAME}.kfs").write_bytes(SEGMENT)
        (folder / f"{NAME}.index").write_bytes(build_index(LAID, 1))
        settings = server.settings | {"KAFSCALE_S3_BUCKET": "another"}
        url = f"s3://{server.bucket}/default/t/0/{NAME}"
        result = dump("--verify", "--records", f"{url}.kfs", f"{url}.index", **settings)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.count(" isvalid: true") == 4
        assert lines_with(result, "verified")[1] == "verified: batches: 0 records: 0 entries: 4 problems: 0"
        part = dump("--offset", "1007", f"{url}.kfs", **settings)
        assert [line.split()[1] for line in lines_with(part, "baseOffset")] == ["1007"]
        missing = dump(f"s3://{server.bucket}/none.kfs", f"s3://no-such/{NAME}.kfs", **settings)
        assert missing.exit_code == 2
        first, second = missing.stderr.splitlines()
        assert first == f"kafscale: s3://{server.bucket}/none.kfs: there is no such object"
        assert "no-such" in second


def test_settings_that_do_not_fit_a_url_are_one_line(segment: Path) -> None:
    result = dump("s3://bucket/key", segment, KAFSCALE_S3_ENDPOINT="nowhere")
    assert result.exit_code == 2
    assert result.stderr.startswith("kafscale: KAFSCALE_S3_ENDPOINT='nowhere' is not legal")
    assert dump(segment, KAFSCALE_S3_ENDPOINT="nowhere").exit_code == 0


def test_a_segment_beyond_2_gib(tmp_path: Path) -> None:
    """A sparse file: a batch of zeros, which breaks its CRC, and a sound one behind it."""
    size = 2**31 - 1
    hole = bytearray(batch(0, 1)[:61])
    hole[8:12] = (size - 12).to_bytes(4, "big")
    behind = batch(1, 3)
    path = tmp_path / "segment-00000000000000000000.kfs"
    with path.open("wb") as file:
        file.write(encode_header(codec=Codec.NONE, base_offset=0, message_count=4, created_ms=1))
        file.write(hole)
        file.seek(32 + size)
        file.write(behind)
        file.write(encode_footer(body_crc=0, last_offset=3))
    path.with_suffix(".index").write_bytes(
        build_index([(0, 32, 1), (1, 32 + size, 3)], 1, version=LARGE_VERSION)
    )
    whole = dump("--records", "--offset", "1", path)
    assert (whole.exit_code, whole.stderr) == (0, "")
    assert lines_with(whole, "baseOffset: 1 ")[0].count(f" position: {32 + size} ") == 1
    assert whole.stdout.count("| offset: ") == 3
    assert dump(path).exit_code == 0
    assert dump("--verify", path.with_suffix(".index")).exit_code == 0


def test_a_reader_of_the_output_that_goes_away_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "large.kfs"
    path.write_bytes(segment_of([batch(number, 1) for number in range(20_000)]))
    with subprocess.Popen(
        [KAFSCALE, "dump", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == f"Dumping {path}\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_SEC) == 141


def test_more_files_than_may_be_open(segment: Path) -> None:
    arguments = " ".join([str(segment)] * 100)
    command = f"ulimit -n 30 && exec {KAFSCALE} dump --offset 0 {arguments}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE_SEC
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Dumping ") == 100


def test_an_encoding_that_lacks_a_character_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "žluť.kfs"
    path.write_bytes(segment_of([encode_batch([Record(0, 1, None, "漢字".encode())])]))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [KAFSCALE, "dump", "--records", str(path)],
        capture_output=True,
        check=False,
        env=environment,
        timeout=PATIENCE_SEC,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"payload: \u6f22\u5b57" in done.stdout


class _Stream:
    """A stream that remembers what was written, by whom."""

    def __init__(self, name: str, log: list[tuple[str, str]]) -> None:
        self._name, self._log = name, log

    def write(self, text: str) -> int:
        self._log.append((self._name, text))
        return len(text)

    def flush(self) -> None:
        pass


def test_lines_come_out_in_order() -> None:
    log: list[tuple[str, str]] = []
    output: Any = _Stream("out", log)
    errors: Any = _Stream("err", log)
    lines = Lines(output, errors)
    lines.write("one")
    lines.write("two")
    lines.report("three")
    lines.write("four")
    lines.flush()
    assert "".join(f"{name}:{text}" for name, text in log if text != "\n") == (
        "out:one\ntwo\nerr:kafscale: threeout:four\n"
    )


def test_long_work_says_how_far_it_is() -> None:
    log: list[tuple[str, str]] = []
    errors: Any = _Stream("err", log)
    now = [100.0]
    progress = Progress(errors, lambda: now[0])
    progress.read(10**9)
    assert log == []
    now[0] += dump_output.PROGRESS_SEC
    progress.read(5 * 10**8)
    assert "".join(text for _, text in log) == "kafscale: read 1.50 GB\n"


def test_help_names_every_option() -> None:
    result = CliRunner().invoke(main, ["dump", "--help"])
    for option in ("FILE|URL", "--verify", "--records", "--offset", "--max-batches", "--json"):
        assert option in result.output


def test_the_pages_example_is_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        Record(
            offset,
            1_790_000_000_000 + 10 * offset,
            None if offset % 3 == 0 else f"key-{offset}".encode(),
            None if offset % 7 == 0 else f"value-{offset:04d}".encode(),
            (("trace", b"abc"),) if offset % 5 == 0 else (),
        )
        for offset in range(40)
    ]
    name = f"segment-{0:020d}.kfs"
    data = segment_of([encode_batch(records)], created_ms=1795245437640)
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(data)
    page = (Path(__file__).parents[2] / "docs" / "dump.md").read_text()
    shown = page.partition(f"$ kafscale dump --verify --records {name}\n")[2].partition("\n\n")[0]
    before, after = (part.split("\n") for part in shown.replace("    ", "").split("\n...\n"))
    printed = dump("--verify", "--records", name).stdout.splitlines()
    assert printed[: len(before)] == before
    assert printed[-len(after) :] == after
    Path(name).write_bytes(data[:600])
    for line in dump(name).stderr.splitlines():
        assert f"    {line}\n" in page


JOURNAL_SLICES = [
    slice_of("orders", 0, leader_batch(10, 3, 2, producer=(7, 1, 5)), leader_batch(13, 2, 2)),
    slice_of("us\x1bers", 3, leader_batch(0, 1, 1)),
]

TRANSACTIONS = slice_of(
    "orders",
    0,
    leader_batch(10, 2, 2, producer=(7, 1, 0), is_transactional=True),
    marker(12, 2, (7, 1), commits=False),
    leader_batch(13, 1, 2, producer=(8, 0, 0), is_transactional=True),
    marker(14, 2, (8, 1), commits=True),
)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """An entry of a journal, a gathered object and a fence."""
    folder = tmp_path / "journals" / "1-abc"
    folder.mkdir(parents=True)
    (folder / f"{7:020d}.entry").write_bytes(entry_of(7, JOURNAL_SLICES))
    (folder / f"{8:020d}.entry").write_bytes(fence_of(8))
    (folder / f"{2:020d}.gathered").write_bytes(entry_of(2, JOURNAL_SLICES, kind=CellKind.GATHERED))
    return folder / f"{7:020d}.entry"


def test_objects_of_journals_are_dumped_as_ever(entry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(entry.parent)
    result = dump("--verify", entry.name, f"{8:020d}.entry", f"{2:020d}.gathered")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (DUMPS / "own-journal-objects.txt").read_text()


def test_transactions_in_an_entry_are_dumped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{7:020d}.entry"
    Path(name).write_bytes(entry_of(7, [TRANSACTIONS]))
    result = dump("--verify", "--records", name)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (DUMPS / "own-transactions.txt").read_text()
    row = next(line for line in dump_json(Path(name)) if line["type"] == "slice")
    assert [one["kind"] for one in row["producers"]] == ["transactional", "abort", "transactional", "commit"]


def test_slice_is_dumped_like_a_segment(entry: Path, tmp_path: Path) -> None:
    segment = tmp_path / "segment.kfs"
    segment.write_bytes(JOURNAL_SLICES[0].data)
    of_slice = dump(
        "--records", "--verify", "--topic", "orders", "--partition", "0", entry
    ).stdout.splitlines()
    of_segment = dump("--records", "--verify", segment).stdout.splitlines()
    assert of_slice[1].startswith("entry: journal: 1-abc sequence: 7 ")
    assert of_slice[2].startswith("slice: topic: orders partition: 0 ")
    assert of_slice[3:-1] == of_segment[1:-1]


def test_json_has_the_rows_of_an_entry(entry: Path) -> None:
    lines = dump_json(entry)
    assert [line["type"] for line in lines] == ["file", "journalEntry", "slice", "slice"]
    assert lines[1]["committedThrough"] == 6
    row = next(line for line in lines if line.get("topic") == "orders")
    assert (row["baseOffset"], row["lastOffset"], row["count"], row["key"]) == (10, 14, 5, None)
    assert row["producers"] == [
        {
            "producerId": 7,
            "producerEpoch": 1,
            "firstSequence": 5,
            "lastSequence": 7,
            "baseOffset": 10,
            "kind": "plain",
        }
    ]
    [fence] = [line for line in dump_json(entry.with_name(f"{8:020d}.entry")) if line["type"] == "fence"]
    assert (fence["journal"], fence["sequence"], fence["broker"]) == ("1-abc", 8, 2)
    assert [line["type"] for line in dump_json(entry.with_name(f"{2:020d}.gathered"))][1] == "gathered"


def test_damaged_entry_is_reported_in_one_line(entry: Path) -> None:
    data = entry.read_bytes()
    entry.write_bytes(data[:70] + b"!" + data[71:])
    result = dump("--records", entry)
    assert result.exit_code == 1
    assert result.stderr == f"kafscale: {entry}: the CRC of the head does not match its bytes\n"
    entry.write_bytes(b"")
    assert "0 bytes are shorter than an entry's first 50" in dump(entry).stderr
    entry.write_bytes(SEGMENT)
    assert "it is named as .entry and begins as .kfs" in dump(entry).stderr
