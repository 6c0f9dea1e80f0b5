"""The debt of sealing: what waits, how much, and for how long."""

from dataclasses import dataclass

from kafscale.formats.journal_keys import entry_key, gathered_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.seal_debt import SealDebt


@dataclass(eq=False)
class Owner:
    """A partition."""

    is_led: bool = True


def reference(offset: int, size_bytes: int = 100, object_key: str = "") -> SegmentReference:
    return SegmentReference(
        base_offset=offset,
        last_offset=offset,
        record_count=1,
        leader_epoch=0,
        size_bytes=size_bytes,
        max_timestamp_ms=0,
        object_key=object_key,
    )


def in_entry(offset: int, size_bytes: int = 100) -> SegmentReference:
    return reference(offset, size_bytes, entry_key("n", "a", offset))


def totals(debt: SealDebt[Owner], now_sec: float) -> tuple[int, int, float]:
    return debt.slices, debt.size_bytes, debt.oldest_sec(now_sec)


def test_nothing_is_owed_at_first() -> None:
    assert totals(SealDebt(), 7.0) == (0, 0, 0.0)


def test_published_slices_add_up_and_age() -> None:
    debt: SealDebt[Owner] = SealDebt()
    one, other = Owner(), Owner()
    debt.added(one, in_entry(0), 10.0)
    debt.added(one, in_entry(1, 50), 20.0)
    debt.added(other, in_entry(0), 15.0)
    assert totals(debt, 30.0) == (3, 250, 20.0)


def test_stored_record_says_what_is_left() -> None:
    debt: SealDebt[Owner] = SealDebt()
    owner = Owner()
    debt.added(owner, in_entry(0), 10.0)
    debt.added(owner, in_entry(1), 20.0)
    gathered = reference(0, 190, gathered_key("n", "a", 0))
    debt.stored(owner, [gathered, in_entry(2)], 30.0)
    assert totals(debt, 40.0) == (2, 290, 30.0)
    debt.stored(owner, [reference(0, 190), in_entry(2)], 50.0)
    assert totals(debt, 60.0) == (1, 100, 10.0)
    debt.stored(owner, [reference(0, 190), reference(2)], 70.0)
    assert totals(debt, 80.0) == (0, 0, 0.0)


def test_slices_of_a_claimed_partition_count_from_its_record() -> None:
    debt: SealDebt[Owner] = SealDebt()
    debt.stored(Owner(), [reference(0), in_entry(1)], 5.0)
    assert totals(debt, 6.0) == (1, 100, 1.0)


def test_partition_led_elsewhere_is_not_counted_or_kept() -> None:
    debt: SealDebt[Owner] = SealDebt()
    owners = [Owner() for _ in range(1000)]
    for owner in owners:
        debt.added(owner, in_entry(0), 1.0)
        owner.is_led = False
    assert totals(debt, 9.0) == (0, 0, 0.0)
    assert len(debt._unsealed) <= 64
