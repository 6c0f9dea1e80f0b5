"""Points in a topic: what the command line may say, and which offsets that means."""

from collections.abc import Mapping
from uuid import UUID

import pytest

from kafscale.errors import SettingError
from kafscale.lake.offset_points import LogEdge, SpecificOffsets, TimestampForAll
from kafscale.lake.topic_points import backfill_of, parse_point, resolve_point, starts_of
from kafscale.reader.topic_state import PartitionLog, TopicLog

LOG = TopicLog(
    topic="orders",
    topic_id=UUID(int=1),
    partitions=tuple(
        PartitionLog(
            topic="orders",
            topic_id=UUID(int=1),
            partition=index,
            log_start_offset=start,
            log_end_offset=end,
            references=(),
        )
        for index, (start, end) in enumerate([(5, 20), (0, 10)])
    ),
)


def find(timestamp_ms: int, log: TopicLog) -> Mapping[int, int | None]:
    """Partition 1 has nothing as new."""
    return {0: timestamp_ms // 1000, 1: None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", LogEdge.EARLIEST),
        (" latest ", LogEdge.LATEST),
        ('{"orders": {"0": 7, "1": -1}}', SpecificOffsets({("orders", 0): 7, ("orders", 1): -1})),
        ("2026-11-21T08:00", TimestampForAll(1795248000000)),
        ("2026-11-21T08:00:00.5+01:00", TimestampForAll(1795244400500)),
        ("2026-11-21", TimestampForAll(1795219200000)),
    ],
)
def test_what_is_understood(text: str, expected: object) -> None:
    assert parse_point("--starting-offsets", text) == expected


@pytest.mark.parametrize("text", ["", "soon", "7", '{"orders"', '{"orders": {"0": -3}}', "2026-13-01"])
def test_what_is_not_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingError, match="--starting-offsets"):
        parse_point("--starting-offsets", text)


def test_ends_of_the_log_offsets_and_times() -> None:
    def resolved(text: str) -> dict[int, int]:
        return resolve_point("--backfill-from", parse_point("--backfill-from", text), LOG, find)

    assert resolved("earliest") == {0: 5, 1: 0}
    assert resolved("latest") == {0: 20, 1: 10}
    assert resolved('{"orders": {"0": 7, "1": -1}, "other": {"0": 1}}') == {0: 7, 1: 10}
    assert resolved('{"orders": {"0": -2}}') == {0: 5}
    assert resolved("1970-01-01T00:00:09") == {0: 9, 1: 10}


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"orders": {"2": 0}}', "no such partition"), ('{"orders": {"0": 21}}', "ends at 20")],
)
def test_offsets_that_the_topic_cannot_have(text: str, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        resolve_point("--starting-offsets", parse_point("--starting-offsets", text), LOG, find)


def test_an_unnamed_partition_starts_with_its_log() -> None:
    said = parse_point("x", '{"orders": {"1": 3}}')
    assert starts_of(said, LOG, find) == {0: 5, 1: 3}
    assert backfill_of(said, LogEdge.LATEST, LOG, find) == {1: (3, 10)}
    assert backfill_of(LogEdge.LATEST, LogEdge.EARLIEST, LOG, find) == {}
