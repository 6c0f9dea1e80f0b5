"""Expired segments: Kafka's rules, case by case and against a model that states them another way."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.topic_configs import effective
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life.retention import Expiry, RetentionLimits, expiry, limits_of
from kafscale.settings.broker import Settings

NOW_MS = 1_000_000
FOR_EVER = 2**63 - 1


def log_of(*segments: tuple[int, int]) -> list[SegmentReference]:
    """Segments of ten records each, of (size, largest timestamp)."""
    return [
        SegmentReference(
            base_offset=10 * number,
            last_offset=10 * number + 9,
            record_count=10,
            leader_epoch=0,
            size_bytes=size_bytes,
            max_timestamp_ms=timestamp_ms,
        )
        for number, (size_bytes, timestamp_ms) in enumerate(segments)
    ]


def expired(
    log: Sequence[SegmentReference],
    *,
    ms: int = -1,
    size: int = -1,
    created: dict[int, int] | None = None,
    now_ms: int = NOW_MS,
) -> Expiry:
    limits = RetentionLimits(retention_ms=ms, retention_bytes=size)
    return expiry(log, sum(one.size_bytes for one in log), limits, now_ms, created or {})


def counts(found: Expiry) -> tuple[int, int]:
    return found.over_size, found.too_old


# --- the limits


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_what_is_to_be_deleted_has_its_topics_limits(policy: str) -> None:
    config = effective({"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "7"}, Settings())
    assert limits_of(config) == RetentionLimits(retention_ms=5, retention_bytes=7)


@pytest.mark.parametrize("policy", ["compact", ""])
def test_what_is_not_to_be_deleted_never_expires(policy: str) -> None:
    config = effective({"cleanup.policy": policy, "retention.ms": "5", "retention.bytes": "7"}, Settings())
    assert limits_of(config) is None


def test_without_limits_nothing_has_to_be_looked_at() -> None:
    assert limits_of(effective({"retention.ms": "-1", "retention.bytes": "-5"}, Settings())) is None


def test_topic_limits_override_settings_and_those_the_defaults() -> None:
    settings = replace(Settings(), retention_ms=60_000, retention_bytes=1000)
    assert limits_of(effective({}, settings)) == RetentionLimits(retention_ms=60_000, retention_bytes=1000)
    own = effective({"retention.ms": "-1", "retention.bytes": "2000"}, settings)
    assert limits_of(own) == RetentionLimits(retention_ms=-1, retention_bytes=2000)
    assert limits_of(effective({}, Settings())) == RetentionLimits(
        retention_ms=604_800_000, retention_bytes=-1
    )


# --- by time


@pytest.mark.parametrize(
    ("timestamps", "count", "due_ms"),
    [
        ((), 0, None),
        ((NOW_MS - 101,), 1, None),  # the last one may go as well
        ((NOW_MS - 100,), 0, NOW_MS + 1),  # more than retention.ms ago, not as much
        ((NOW_MS,), 0, NOW_MS + 101),
        ((NOW_MS - 500, NOW_MS - 101, NOW_MS - 20), 2, NOW_MS + 81),
        ((NOW_MS - 500, NOW_MS - 50, NOW_MS - 500), 1, NOW_MS + 51),  # what is behind waits
        (
            (NOW_MS + 10_000, NOW_MS - 500),
            0,
            NOW_MS + 10_101,
        ),  # a timestamp in the future keeps all behind it
        ((0,), 1, None),
    ],
)
def test_segments_expire_by_their_largest_timestamp(
    timestamps: tuple[int, ...], count: int, due_ms: int | None
) -> None:
    found = expired(log_of(*((100, timestamp) for timestamp in timestamps)), ms=100)
    assert (counts(found), found.is_undecided, found.due_ms) == ((0, count), False, due_ms)


def test_no_limit_of_time() -> None:
    assert expired(log_of((100, 0)), ms=-1).count == 0
    assert expired(log_of((100, 0)), ms=FOR_EVER).count == 0
    assert counts(expired(log_of((100, NOW_MS - 1), (100, NOW_MS)), ms=0)) == (0, 1)


def test_a_segment_without_timestamps_expires_by_its_known_age() -> None:
    log = log_of((100, -1), (100, -1), (100, NOW_MS))
    assert expired(log, ms=100).is_undecided
    one = expired(log, ms=100, created={0: NOW_MS - 101})
    assert (one.count, one.is_undecided) == (1, True)
    young = expired(log, ms=100, created={0: NOW_MS - 101, 10: NOW_MS - 100})
    assert (young.count, young.is_undecided, young.due_ms) == (1, False, NOW_MS + 1)
    old = expired(log, ms=100, created={0: NOW_MS - 101, 10: NOW_MS - 101})
    assert (old.count, old.is_undecided) == (2, False)


def test_age_is_ignored_with_a_timestamp_or_no_time_limit() -> None:
    assert expired(log_of((100, NOW_MS)), ms=100, created={0: 0}).count == 0
    found = expired(log_of((100, -1), (100, -1)), size=100)
    assert (found.count, found.is_undecided) == (1, False)


# --- by size


@pytest.mark.parametrize(
    ("size", "count"),
    [(-1, 0), (600, 0), (500, 1), (501, 0), (300, 2), (299, 2), (301, 1), (1, 2), (0, 3), (10_000, 0)],
)
def test_segments_expire_while_the_rest_has_retention_bytes(size: int, count: int) -> None:
    assert counts(expired(log_of((100, 0), (200, 0), (300, 0)), size=size)) == (count, 0)


def test_size_goes_first_and_time_looks_at_what_is_left() -> None:
    future, old = NOW_MS + 10_000, NOW_MS - 500
    log = log_of((100, future), (100, old), (100, NOW_MS))
    assert counts(expired(log, ms=100, size=200)) == (1, 1)
    assert counts(expired(log, ms=100, size=300)) == (0, 0)


# --- a model


class Model:
    """UnifiedLog.deleteOldSegments: two passes, each from the oldest segment on while its predicate is true."""

    def __init__(self, segments: list[tuple[int, int]]) -> None:
        self.segments = segments

    def delete_old_segments(self, retention_ms: int, retention_bytes: int, now_ms: int) -> tuple[int, int]:
        by_size = by_time = 0
        if retention_bytes >= 0:
            while self.segments:
                rest = sum(size for size, _ in self.segments[1:])
                if rest < retention_bytes:
                    break
                self.segments.pop(0)
                by_size += 1
        if retention_ms >= 0:
            while self.segments and now_ms - self.segments[0][1] > retention_ms:
                self.segments.pop(0)
                by_time += 1
        return by_size, by_time


@given(
    segments=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 300), st.booleans()), max_size=12),
    retention_ms=st.integers(-1, 200),
    retention_bytes=st.integers(-1, 400),
    now_ms=st.integers(0, 400),
)
def test_as_the_model_does(
    segments: list[tuple[int, int, bool]], retention_ms: int, retention_bytes: int, now_ms: int
) -> None:
    """Of a segment without a timestamp the time is its age, which is read when it matters."""
    log = log_of(*((size, -1 if is_undated else time) for size, time, is_undated in segments))
    ages = {10 * number: time for number, (_, time, is_undated) in enumerate(segments) if is_undated}
    known: dict[int, int] = {}
    found = expired(log, ms=retention_ms, size=retention_bytes, created=known, now_ms=now_ms)
    while found.is_undecided:
        offset = log[found.count].base_offset
        assert offset not in known
        known[offset] = ages[offset]
        found = expired(log, ms=retention_ms, size=retention_bytes, created=known, now_ms=now_ms)
    model = Model([(size, time) for size, time, _ in segments])
    assert counts(found) == model.delete_old_segments(retention_ms, retention_bytes, now_ms)
    if found.due_ms is not None:
        assert found.due_ms > now_ms
        assert model.delete_old_segments(retention_ms, retention_bytes, found.due_ms - 1) == (0, 0)
        assert model.delete_old_segments(retention_ms, retention_bytes, found.due_ms)[1] > 0
    else:
        assert model.delete_old_segments(retention_ms, retention_bytes, 10**9) == (0, 0)
