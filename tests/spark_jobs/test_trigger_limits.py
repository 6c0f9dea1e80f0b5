"""When a micro-batch of a stream begins, and where it ends."""

from uuid import UUID

from kafscale.reader.topic_state import PartitionEnds, PartitionKey
from spark_jobs.source.trigger_limits import TriggerLimits
from spark_jobs.source.trigger_options import TriggerOptions

FIRST, SECOND = ("events", 0), ("events", 1)


def bounds(*ends: int, start: int = 0) -> dict[PartitionKey, PartitionEnds]:
    return {
        ("events", partition): PartitionEnds(
            topic="events",
            topic_id=UUID(int=1),
            partition=partition,
            log_start_offset=start,
            log_end_offset=end,
        )
        for partition, end in enumerate(ends)
    }


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def end(limits: TriggerLimits, starts: dict[PartitionKey, int], *ends: int, start: int = 0) -> object:
    latest = {key: one.log_end_offset for key, one in bounds(*ends).items()}
    return limits.end_of(starts, latest, bounds(*ends, start=start))


def test_without_limits_everything_is_taken() -> None:
    assert end(TriggerLimits(TriggerOptions()), {}, 3, 4) == {FIRST: 3, SECOND: 4}


def test_fewer_offsets_are_enough_after_the_delay() -> None:
    clock = Clock()
    limits = TriggerLimits(TriggerOptions(min_offsets=4, max_delay_sec=60), clock)
    assert end(limits, {FIRST: 9}, 10) == {FIRST: 10}, "the first one does not wait"
    assert end(limits, {FIRST: 10}, 13) is None
    clock.now += 59
    assert end(limits, {FIRST: 10}, 13) is None
    clock.now += 1
    assert end(limits, {FIRST: 10}, 13) == {FIRST: 13}
    assert end(limits, {FIRST: 13}, 14) is None, "the delay begins again"
    assert end(limits, {FIRST: 13}, 17) == {FIRST: 17}


def test_offsets_that_expired_do_not_wait() -> None:
    limits = TriggerLimits(TriggerOptions(min_offsets=4), Clock())
    end(limits, {}, 0)
    assert end(limits, {FIRST: 0}, 10, start=8) is None


def test_both_limits_hold() -> None:
    limits = TriggerLimits(TriggerOptions(min_offsets=4, max_offsets=6), Clock())
    assert end(limits, {FIRST: 0, SECOND: 0}, 9, 3) == {FIRST: 4, SECOND: 1}


def test_the_end_is_that_of_the_first_look() -> None:
    limits = TriggerLimits(TriggerOptions(ends_at_latest=True, max_offsets=2))
    assert end(limits, {FIRST: 0}, 3) == {FIRST: 2}
    assert end(limits, {FIRST: 2}, 9, 5) == {FIRST: 3}, "neither what is new nor new partitions"
    assert end(limits, {FIRST: 3}, 9, 5) == {FIRST: 3}
