"""Checkpoints: read as written, damage refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from tests.formats.test_partition_record import OFFSETS, aborted_transactions, producers, references

checkpoints = st.builds(
    Checkpoint,
    end_offset=OFFSETS,
    segments=st.lists(references, max_size=5).map(tuple),
    producers=st.lists(producers, max_size=5).map(tuple),
    aborted=st.lists(aborted_transactions, max_size=3).map(tuple),
)


@given(checkpoints)
def test_a_checkpoint_reads_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint("c", encode_checkpoint(checkpoint)) == checkpoint


@given(checkpoints, st.data())
def test_every_damage_of_the_content_is_refused(checkpoint: Checkpoint, data: st.DataObject) -> None:
    stored = bytearray(encode_checkpoint(checkpoint) + b"\x00" * 4)
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptDataError):
        decode_checkpoint("c", bytes(stored))


def test_an_unknown_version_is_refused() -> None:
    stored = bytearray(encode_checkpoint(Checkpoint(end_offset=0)))
    stored[5] = 3
    with pytest.raises(UnknownFormatVersionError):
        decode_checkpoint("c", bytes(stored))
