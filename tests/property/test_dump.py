"""A dump of damaged files: it never falls over, never calls a batch sound that is not, and misses no damage."""

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafscale.commands.dump_json import json_lines_of
from kafscale.commands.dump_text import lines_of
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index
from kafscale.formats.partition_record import ProducerRecord, SegmentReference
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.tools.dump.checkpoint_walk import checkpoint_findings
from kafscale.tools.dump.findings import Finding, FoundBatch, FoundRecord, Look
from kafscale.tools.dump.piece_reader import PieceReader
from tests.formats.segments import batch, segment_of
from tests.tools.dump.sources import EVERYTHING, VERIFY, MemorySource, problems, walk_index, walk_segment

BATCHES = [
    batch(7, 3),
    batch(10, 2, codec=Codec.ZSTD),
    encode_batch([Record(12, 5, b"\0\0\0\1", b"\0\0\0\0\0\7")], is_control=True, producer_id=3),
    batch(20, 5, codec=Codec.SNAPPY),
    batch(25, 5, codec=Codec.LZ4),
    batch(30, 5, codec=Codec.GZIP),
]
SEGMENT = segment_of(BATCHES)
LAID = [
    (header.base_offset, 32 + sum(map(len, BATCHES[:number])), header.record_count)
    for number, header in enumerate(read_header(data, 0) for data in BATCHES)
]
INDEXES = {version: build_index(LAID, 3, version=version) for version in (LEGACY_VERSION, LARGE_VERSION)}
CHECKPOINT = encode_checkpoint(
    Checkpoint(
        end_offset=30,
        segments=(
            SegmentReference(
                base_offset=0, last_offset=9, record_count=10, leader_epoch=1, size_bytes=99, max_timestamp_ms=5
            ),
            SegmentReference(
                base_offset=10, last_offset=29, record_count=9, leader_epoch=1, size_bytes=99, max_timestamp_ms=5,
                object_key="n/t/0/segment-00000000000000000010-00000000000000000029.kfs",
            ),
        ),
        producers=(
            ProducerRecord(
                producer_id=3, producer_epoch=1, last_timestamp_ms=5, batches=(ProducerBatch(0, 4, 20),)
            ),
        ),
    )
)  # fmt: skip

looks = st.builds(
    Look,
    verify=st.booleans(),
    records=st.booleans(),
    from_offset=st.none() | st.integers(0, 40),
    max_batches=st.none() | st.integers(1, 5),
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The file with some bytes changed, and cut or with more at the end, or all of that."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        position = draw(st.integers(0, len(changed) - 1))
        changed[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    kept = draw(st.integers(0, len(changed)) | st.just(len(changed)))
    return bytes(changed[:kept]) + draw(st.binary(max_size=70))


def printed(findings: list[Finding]) -> None:
    """Each finding as text and as JSON: every line is one line, harmless."""
    for finding in findings:
        for line in (*lines_of(finding), *json_lines_of(finding, "file")):
            assert line.replace("\t", "").isprintable()


def no_batch_is_misjudged(data: bytes, findings: list[Finding]) -> None:
    is_valid: bool | None = None
    for finding in findings:
        if isinstance(finding, FoundBatch):
            at = finding.position
            covered = data[at + 21 : at + finding.header.size_bytes]
            is_valid = finding.is_valid
            assert finding.header == read_header(data, at)
            assert is_valid is None or is_valid == (crc32c(covered) == finding.header.crc)
        elif isinstance(finding, FoundRecord):
            assert is_valid is True


@given(damaged(SEGMENT), looks, st.none() | damaged(INDEXES[LEGACY_VERSION]))
def test_a_damaged_segment_is_shown_as_it_is(data: bytes, look: Look, index: bytes | None) -> None:
    findings = walk_segment(data, look, index=index)
    printed(findings)
    no_batch_is_misjudged(data, findings)


@given(st.integers(0, len(SEGMENT) - 1), st.integers(1, 255))
def test_no_changed_byte_of_a_segment_is_missed(position: int, difference: int) -> None:
    """All but the flags, the creation time and the reserved bytes, which nothing else in the file tells."""
    changed = bytearray(SEGMENT)
    changed[position] ^= difference
    is_free = position in range(6, 8) or position in range(20, 32)
    assert (problems(walk_segment(bytes(changed))) == []) is is_free
    findings = walk_segment(bytes(changed), EVERYTHING)
    no_batch_is_misjudged(bytes(changed), findings)


@given(st.integers(0, len(SEGMENT) - 1))
def test_no_cut_of_a_segment_is_missed(size: int) -> None:
    assert problems(walk_segment(SEGMENT[:size], Look()))


@given(st.sampled_from(list(INDEXES)), st.data(), looks)
def test_a_damaged_index_is_shown_as_it_is(version: int, data: st.DataObject, look: Look) -> None:
    segment = data.draw(st.none() | st.just(SEGMENT) | damaged(SEGMENT))
    printed(walk_index(data.draw(damaged(INDEXES[version])), look, segment=segment))


@given(st.sampled_from(list(INDEXES)), st.data(), st.integers(1, 255))
def test_no_changed_byte_of_an_index_is_missed(version: int, data: st.DataObject, difference: int) -> None:
    """All but the interval and the reserved bytes."""
    changed = bytearray(INDEXES[version])
    position = data.draw(st.integers(0, len(changed) - 1).filter(lambda at: at not in range(10, 16)))
    changed[position] ^= difference
    assert problems(walk_index(bytes(changed), VERIFY, segment=SEGMENT))


@given(damaged(CHECKPOINT))
def test_a_damaged_checkpoint_is_refused(data: bytes) -> None:
    findings = list(checkpoint_findings(PieceReader(MemorySource(data))))
    printed(findings)
    # The CRC covers what follows the header; the header's own fields are checked against it in part.
    if data[:28] == CHECKPOINT[:28] and data != CHECKPOINT:
        assert problems(findings)
