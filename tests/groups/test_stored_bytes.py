"""The count of what groups have in the store: never less than what is there, and given back."""

import pytest

from kafscale.groups.stored_bytes import KEY_BYTES, StoredGroup, StoredTotals, stored_size
from kafscale.groups.stored_counting import _sizes
from kafscale.groups.stored_limits import MAX_COMMIT_BYTES, StoredLimits, check_commit_bytes
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, Snapshot
from kafscale.protocol.error_codes import ErrorCode, KafkaError

LIMITS = StoredLimits(group_offset_bytes=1000, all_bytes=64 * 100)


def test_an_offset_written_again_counts_once() -> None:
    totals = StoredTotals()
    group = StoredGroup(totals)
    group.put({("t", 0): 100, ("t", 1): 200})
    assert group.growth({("t", 0): 150, ("u", 0): 30}) == 80
    group.put({("t", 0): 150, ("u", 0): 30})
    assert (group.offset_bytes, totals.offset_bytes) == (380, 380)
    assert (group.size(("t", 0)), group.size(("t", 7))) == (150, None)


def test_what_is_taken_out_is_counted_no_longer() -> None:
    totals = StoredTotals()
    group = StoredGroup(totals)
    group.put({("t", 0): 100, ("t", 1): 200})
    assert group.remove([("t", 1), ("t", 2), ("u", 0)]) == {("t", 1): 200}
    assert (group.offset_bytes, totals.offset_bytes) == (100, 100)
    assert not group.may_have(("t", 1))
    group.set_record(50)
    assert totals.all_bytes == 150
    group.clear()
    assert (group.offset_bytes, totals.all_bytes) == (0, 0)


def test_failed_deletion_counts_again_what_stays() -> None:
    group = StoredGroup(StoredTotals())
    group.put({("t", 0): 100, ("t", 1): 200})
    removed = group.remove([("t", 0), ("t", 1)])
    group.put({("t", 1): 20})
    group.put_back(removed)
    assert (group.size(("t", 0)), group.size(("t", 1))) == (100, 20)


def test_what_is_read_later_does_not_undo_what_came_since() -> None:
    group = StoredGroup(StoredTotals())
    group.is_complete = False
    assert group.may_have(("t", 9))
    group.put({("t", 0): 10})
    group.remove([("t", 1)])
    group.complete({("t", 0): 99, ("t", 1): 99, ("t", 2): 99})
    assert [group.size(("t", index)) for index in range(3)] == [10, None, 99]
    group.complete({("t", 3): 99})
    assert group.offset_bytes == 109
    assert not group.may_have(("t", 9))


def test_a_size_holds_key_value_and_what_a_key_costs() -> None:
    assert stored_size("four", b"sixsix") == KEY_BYTES + 10


def test_a_broker_may_use_its_share_of_the_whole() -> None:
    assert [LIMITS.broker_bytes(shards) for shards in (0, 1, 32, 64)] == [0, 100, 3200, 6400]


def totals_of(size: int) -> StoredTotals:
    totals = StoredTotals()
    totals.record_bytes = size
    return totals


@pytest.mark.parametrize(("growth", "is_taken"), [(-1, True), (0, True), (900, True), (901, False)])
def test_a_group_grows_up_to_its_limit(growth: int, is_taken: bool) -> None:
    group = StoredGroup(StoredTotals())
    group.put({("t", 0): 100})
    assert_taken(is_taken, group, totals_of(100), growth)


@pytest.mark.parametrize(("growth", "is_taken"), [(0, True), (300, True), (301, False)])
def test_all_groups_grow_up_to_three_quarters(growth: int, is_taken: bool) -> None:
    assert_taken(is_taken, StoredGroup(StoredTotals()), totals_of(4500), growth)


def assert_taken(is_taken: bool, group: StoredGroup, totals: StoredTotals, growth: int) -> None:
    if is_taken:
        LIMITS.check_commit(group, totals, 64, growth)
        return
    with pytest.raises(KafkaError) as refusal:
        LIMITS.check_commit(group, totals, 64, growth)
    assert refusal.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def test_new_groups_stop_at_three_quarters_of_the_limit() -> None:
    LIMITS.check_new_group(totals_of(4800), 64)
    with pytest.raises(KafkaError) as refusal:
        LIMITS.check_new_group(totals_of(4801), 64)
    assert refusal.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    LIMITS.check_record(totals_of(6000), 64, 400)
    LIMITS.check_record(totals_of(9999), 64, 0)
    with pytest.raises(KafkaError) as refusal:
        LIMITS.check_record(totals_of(6000), 64, 401)
    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_one_commit_has_a_limit_of_its_own() -> None:
    check_commit_bytes(MAX_COMMIT_BYTES)
    with pytest.raises(KafkaError) as refusal:
        check_commit_bytes(MAX_COMMIT_BYTES + 1)
    assert refusal.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE


async def test_foreign_key_among_offsets_is_passed_over() -> None:
    good = KeyValue(key=keys.group_offset("g", "t", 0), value=b"1", mod_revision=1)
    foreign = KeyValue(key=good.key.rpartition("/")[0], value=b"2", mod_revision=2)
    sizes = await _sizes(Snapshot(items=(foreign, good), revision=2))
    assert sizes == {"g": {("t", 0): stored_size(good.key, good.value)}}
