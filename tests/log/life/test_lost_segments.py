"""Segments that a log may go on without when objects of it are missing."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.lost_segments import loss_of

LOG = [
    SegmentReference(
        base_offset=offset,
        last_offset=offset,
        record_count=1,
        leader_epoch=0,
        size_bytes=100,
        max_timestamp_ms=0,
    )
    for offset in range(6)
]


@given(missing=st.sets(st.sampled_from(LOG)))
def test_a_loss_is_droppable_only_at_the_start_of_the_log(missing: set[SegmentReference]) -> None:
    loss = loss_of(LOG, missing)
    assert {*loss.at_start, *loss.inside} == missing
    assert bool(loss) == bool(missing)
    assert list(loss.at_start) == LOG[: len(loss.at_start)]
    is_prefix = missing == set(LOG[: len(missing)])
    assert list(loss.droppable) == (LOG[: len(missing)] if is_prefix else [])


def test_everything_can_be_missing() -> None:
    assert list(loss_of(LOG, set(LOG)).droppable) == LOG
    assert not loss_of([], set(LOG))
