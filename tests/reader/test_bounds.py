"""Starts and ends of reads: what is legal, and what it means."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from kafscale.reader.bounds import AtTime, Bound, Edge, ReadOptionError, parse_bound

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
NOON_MS = 1_795_694_400_000


@pytest.mark.parametrize(
    ("value", "point"),
    [
        (None, Edge.EARLIEST),
        ("earliest", Edge.EARLIEST),
        ("latest", Edge.LATEST),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (np.int32(7), 7),
        (NOON, AtTime(NOON_MS)),
        (NOON.astimezone(timezone(timedelta(hours=5))), AtTime(NOON_MS)),
        (NOON + timedelta(microseconds=1), AtTime(NOON_MS + 1)),
        (NOON + timedelta(milliseconds=1), AtTime(NOON_MS + 1)),
        (pd.Timestamp("2026-11-26T13:00", tz="Europe/Berlin"), AtTime(NOON_MS)),
        ("2026-11-26T12:00:00Z", AtTime(NOON_MS)),
        ("2026-11-26 14:00+02:00", AtTime(NOON_MS)),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), AtTime(0)),
    ],
)
def test_points(value: Any, point: object) -> None:
    assert parse_bound("start", value, Edge.EARLIEST) == Bound(point)  # type: ignore[arg-type]


def test_partitions_that_a_mapping_does_not_name() -> None:
    bound = parse_bound("end", {0: 5, 3: NOON}, Edge.LATEST)
    assert [bound.of(partition) for partition in range(4)] == [5, Edge.LATEST, Edge.LATEST, AtTime(NOON_MS)]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (-1, "start=-1 "),
        (2**63, f"start={2**63} "),
        (True, "start=True "),
        (1.5, "start=1.5 "),
        ("newest", "start='newest' "),
        ("2026-11-26T12:00:00", "a time needs its zone, such as 2026-11-26T12:00:00Z"),
        (datetime(2026, 11, 26), "a time needs its zone"),
        ({0: -2}, r"start\[0\]=-2 "),
        ({"0": 5}, "'0' is no partition"),
        ({-1: 5}, "-1 is no partition"),
        ([5], r"start=\[5\] "),
    ],
)
def test_what_is_not_legal_is_named(value: Any, named: str) -> None:
    with pytest.raises(ReadOptionError, match=named):
        parse_bound("start", value, Edge.EARLIEST)
    with pytest.raises(ValueError, match="not legal"):
        parse_bound("start", value, Edge.EARLIEST)
