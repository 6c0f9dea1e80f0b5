"""Items that background work skips: counted each time, logged at a limited rate."""

from collections import Counter

import pytest

from kafscale.ops.item_failures import INTERVAL_SEC, LINES_PER_INTERVAL, BackgroundWork, ItemFailures


def test_each_failure_is_counted_and_each_item_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counts: Counter[str] = Counter()
    now_sec = 0.0
    failures = ItemFailures(BackgroundWork.RETENTION, counts, lambda: now_sec)
    for _ in range(3):
        failures.report("t-0", ValueError("too large"))
    failures.report("t-1", ValueError("too large"))
    assert counts["retention"] == 4
    assert [line.__dict__["item"] for line in caplog.records] == ["t-0", "t-1"]
    now_sec = INTERVAL_SEC
    failures.report("t-0", ValueError("too large"))
    assert [line.__dict__["unlogged_before"] for line in caplog.records] == [0, 2, 0]
    assert all(line.exc_info for line in caplog.records)


def test_lines_of_many_items_are_few(caplog: pytest.LogCaptureFixture) -> None:
    failures = ItemFailures(BackgroundWork.GARBAGE, None, lambda: 0.0)
    for number in range(10_000):
        failures.report(number, ValueError("too large"))
    assert len(caplog.records) == LINES_PER_INTERVAL
