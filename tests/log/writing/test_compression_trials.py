"""The batches of a partition that are tried, where some shrink and some do not."""

import os

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.writing.compression_trials import SKIPPED, CompressionTrials
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import read_header
from kafscale.settings.broker import CompressionCodec
from tests.support import wire
from tests.support.in_process_broker import in_process_broker
from tests.support.on_uvloop import on_uvloop


def test_batches_that_shrink_are_all_tried() -> None:
    trials = CompressionTrials()
    for size_bytes in (100, 1_000_000, 100):
        assert trials.is_due(size_bytes)
        trials.tried(size_bytes, shrank=True)


def test_after_one_that_did_not_as_many_bytes_are_skipped() -> None:
    trials = CompressionTrials()
    for _ in range(3):
        assert trials.is_due(100)
        trials.tried(100, shrank=False)
        assert [trials.is_due(100) for _ in range(SKIPPED)] == [False] * SKIPPED


def test_a_large_batch_is_tried_whatever_a_small_one_was() -> None:
    trials = CompressionTrials()
    assert trials.is_due(100)
    trials.tried(100, shrank=False)
    assert trials.is_due(SKIPPED * 100 + 1)


@given(st.lists(st.tuples(st.integers(1, 10_000), st.booleans()), max_size=200))
def test_what_does_not_shrink_costs_a_sixteenth_at_most(batches: list[tuple[int, bool]]) -> None:
    trials, skipped_bytes, open_bytes = CompressionTrials(), 0, 0
    for size_bytes, shrinks in batches:
        if trials.is_due(size_bytes):
            trials.tried(size_bytes, shrank=shrinks)
            open_bytes, skipped_bytes = (0 if shrinks else size_bytes), 0
        else:
            skipped_bytes += size_bytes
            assert skipped_bytes <= SKIPPED * open_bytes


@on_uvloop
async def test_only_records_that_shrink_are_stored_compressed() -> None:
    async with in_process_broker(compression_codec=CompressionCodec.SNAPPY) as broker:
        await broker.create_topic("topic")
        async with broker.connect() as client:
            # The second is as large as the first, and not tried; the third is larger than all that is skipped.
            for value in (os.urandom(4_000), b"x" * 4_000, b"x" * 100_000, b"x" * 4_000):
                assert not (await client.produce("topic", 0, wire.batch([value]))).error_code
        log = broker.partition("topic").log
        assert log is not None
        codecs = []
        for reference in log.record.segments:
            stored = await broker.objects.get(reference.object_key)
            codecs.append(read_header(memoryview(stored), reference.start + HEADER_SIZE).codec)
    assert codecs == [Codec.NONE, Codec.NONE, Codec.SNAPPY, Codec.SNAPPY]
