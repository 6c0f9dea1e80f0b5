"""Values of `share.auto.offset.reset`: what is legal, and how far back a duration goes."""

import pytest

from kafscale.cluster.offset_reset import OffsetReset, ResetTo

DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000


def test_ends_of_the_log() -> None:
    assert OffsetReset.parse("earliest") == OffsetReset(ResetTo.EARLIEST)
    assert OffsetReset.parse("latest") == OffsetReset(ResetTo.LATEST)


@pytest.mark.parametrize(
    ("duration", "duration_ms"),
    [
        ("PT0S", 0),
        ("PT1H", HOUR_MS),
        ("pt1h", HOUR_MS),
        ("P1D", DAY_MS),
        ("P2DT3H4M5.678S", 2 * DAY_MS + 3 * HOUR_MS + 4 * MINUTE_MS + 5_678),
        ("PT1.5S", 1_500),
        ("PT1,0019S", 1_001),
        ("+PT1M", MINUTE_MS),
        ("PT2H-30M", HOUR_MS + 30 * MINUTE_MS),
        ("-PT-1M", MINUTE_MS),
        ("PT1M-0.5S", MINUTE_MS - 500),
        ("P999999999999D", 999_999_999_999 * DAY_MS),
    ],
)
def test_durations_are_those_of_iso_8601(duration: str, duration_ms: int) -> None:
    assert OffsetReset.parse(f"by_duration:{duration}") == OffsetReset(ResetTo.BY_DURATION, duration_ms)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "LATEST",
        "by_duration",
        "by_duration:",
        "by_duration:x",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:P1Y",
        "by_duration:P1M",
        "by_duration:P1W",
        "by_duration:PT1H30",
        "by_duration:PT1M1H",
        "by_duration:P-1D",
        "by_duration:-PT1H",
        "by_duration:PT-0.5S",
        "by_duration: PT1H",
        "by_duration:PT\uff11H",
        f"by_duration:P{'9' * 5_000}D",
    ],
)
def test_what_is_not_legal(text: str) -> None:
    with pytest.raises(ValueError):
        OffsetReset.parse(text)
