"""The operations of a group's coordinator, exactly, and in which order."""

import pytest

from kafscale.formats.share_start_record import MAX_STATE_EPOCH, ShareStartRecord, decode_share_start
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import Delete, Operation, Put
from kafscale.share.state.operations import Change, alter, delete, delete_all, initialize
from tests.share.state.partitions import CHANGE, partition

ONE, TWO = partition(1), partition(2)
BY_ALICE = Change(now_ms=9, principal="User:alice")


def put(operation: Operation) -> tuple[SharePartitionId, ShareStartRecord]:
    assert isinstance(operation, Put)
    return keys.share_partition(operation.key), decode_share_start(operation.key, operation.value)


def test_only_partitions_without_a_start_are_initialized() -> None:
    first = initialize([ONE], {}, CHANGE)
    made = initialize([ONE, TWO], first.starts, CHANGE)
    record = ShareStartRecord(state_epoch=0, start_offset=-1, changed_ms=CHANGE.now_ms)
    assert made.starts == {TWO: record}
    left_behind, start = made.operations
    assert left_behind == Delete(keys.share_state(TWO))
    assert put(start) == (TWO, record)
    assert initialize([ONE, TWO], {**first.starts, **made.starts}, CHANGE).operations == ()


def test_an_alteration_is_of_the_next_epoch() -> None:
    known = initialize([ONE], {}, CHANGE).starts
    made = alter({ONE: 50, TWO: 60}, known, BY_ALICE)
    assert made.starts == {
        ONE: ShareStartRecord(state_epoch=1, start_offset=50, changed_ms=9, changed_by="User:alice"),
        TWO: ShareStartRecord(state_epoch=0, start_offset=60, changed_ms=9, changed_by="User:alice"),
    }
    altered, left_behind, start = made.operations
    assert put(altered) == (ONE, made.starts[ONE])
    assert left_behind == Delete(keys.share_state(TWO))
    assert put(start) == (TWO, made.starts[TWO])


def test_start_beyond_the_last_epoch_or_offset_is_refused() -> None:
    last = {ONE: ShareStartRecord(state_epoch=MAX_STATE_EPOCH, changed_ms=1)}
    with pytest.raises(ValueError, match="has state epoch 2147483647, the last one: delete it"):
        alter({ONE: 5}, last, CHANGE)
    with pytest.raises(ValueError, match="start offset -2, legal are -1"):
        alter({ONE: -2}, {}, CHANGE)


def test_starts_are_deleted_before_their_states() -> None:
    assert delete([ONE]) == (Delete(keys.share_start(ONE)), Delete(keys.share_state(ONE)))
    starts, states = [f"start{number}" for number in range(3)], [f"state{number}" for number in range(4)]
    steps = list(delete_all(starts, states, at_once=3))
    assert [[one.key for one in step] for step in steps] == [starts, states[:3], states[3:]]
    assert list(delete_all([], [])) == []
