"""When snapshots are due: by schedule, once after a pause, and later each time after failures."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.operator.backups.plan import (
    FIRST_RETRY_SEC,
    LAST_RETRY_SEC,
    BackupRecord,
    retry_sec,
    seconds_until_due,
)
from kafscale.operator.errors import SpecError
from kafscale.operator.times import Schedule

HALF_HOURS = Schedule("*/30 * * * *")
TWO = datetime(2026, 11, 22, 2, tzinfo=UTC)


def until_due(minutes_ago: float | None, now: datetime = TWO, schedule: Schedule = HALF_HOURS) -> float:
    """With a newest snapshot of so long ago."""
    last = None if minutes_ago is None else now - timedelta(minutes=minutes_ago)
    return seconds_until_due(schedule, BackupRecord(last_success=last), now)


def test_the_first_is_due_at_once() -> None:
    assert until_due(None) == 0
    assert until_due(None, schedule=Schedule("@monthly")) == 0


@pytest.mark.parametrize(
    ("minute", "minutes_ago", "minutes"),
    [
        (0, 30, 0),  # the scheduled moment itself
        (0, 0, 30),
        (10, 10, 20),
        (10, 9, 20),
        (10, 11, 0),  # one was missed
        (10, 3000, 0),  # many were: one makes up for all
        (29.75, 29.75, 0.25),
    ],
)
def test_backup_is_due_after_a_scheduled_time_has_passed(
    minute: float, minutes_ago: float, minutes: float
) -> None:
    assert until_due(minutes_ago, TWO + timedelta(minutes=minute)) == minutes * 60


@pytest.mark.parametrize(("minutes_ahead", "minutes"), [(4, 30), (6, 0), (600_000, 0)])
def test_one_of_a_clock_that_went_wrong_is_not_waited_for(minutes_ahead: float, minutes: float) -> None:
    """Found: a snapshot of next year was the last one until then, and no alert told."""
    assert until_due(-minutes_ahead) == minutes * 60


@given(
    now=st.datetimes(datetime(2024, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),
    text=st.sampled_from(["*/30 * * * *", "@hourly", "30 2 * * *", "0 0 29 2 *", "@weekly", "5 */7 * * 1-5"]),
)
def test_backup_is_due_next_at_the_next_scheduled_time(now: datetime, text: str) -> None:
    schedule = Schedule(text)
    newest, following = schedule.newest(now), schedule.next(now)
    assert newest <= now < following
    taken = BackupRecord(last_success=now)
    assert seconds_until_due(schedule, taken, now) == pytest.approx((following - now).total_seconds())
    assert seconds_until_due(schedule, taken, following) == 0


def test_failures_are_tried_again_later_each_time() -> None:
    waits = [retry_sec(failures) for failures in range(1, 5000)]
    assert (waits[0], waits[-1]) == (FIRST_RETRY_SEC, LAST_RETRY_SEC)
    assert waits == sorted(waits)


@pytest.mark.parametrize("text", ["99 * * * *", "a b c d e", "0 0 31 2 *", "@never", "* * *"])
def test_a_schedule_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.backups\.schedule .*five fields") as refused:
        Schedule.parse("spec.backups.schedule", text)
    assert repr(text) in str(refused.value)


def test_a_status_is_read_back() -> None:
    record = BackupRecord(last_success=TWO, last_attempt=TWO, key="k", revision=5, size_bytes=6, sha256="ab")
    assert BackupRecord.of_status({"backup": record.as_map()}) == record
    assert BackupRecord.of_status({}) == BackupRecord()
    assert BackupRecord().as_map() == {}
