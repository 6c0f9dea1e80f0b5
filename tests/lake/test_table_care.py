"""The properties that keep metadata small are set where nobody has said otherwise."""

import pytest

from kafscale.lake.table_care import (
    DELETE_OLD_METADATA,
    GC_ENABLED,
    MAX_SNAPSHOT_AGE_MS,
    MERGE_MANIFESTS,
    MIN_SNAPSHOTS,
    PREVIOUS_VERSIONS,
    STAGED_AGE_MS,
    RefLimits,
    Retention,
    SnapshotAge,
    expired_ids,
    properties_of_new_table,
    properties_to_add,
    retention_of,
)


def test_a_new_table_lets_go_of_old_snapshots() -> None:
    assert retention_of(properties_of_new_table()) == Retention(max_age_ms=6 * 3_600_000, min_snapshots=100)


def test_an_existing_table_keeps_its_snapshots_and_properties() -> None:
    added = {DELETE_OLD_METADATA: "true", PREVIOUS_VERSIONS: "20", MERGE_MANIFESTS: "true"}
    assert properties_to_add({}) == added
    assert properties_to_add({DELETE_OLD_METADATA: "false", PREVIOUS_VERSIONS: "5"}) == {
        MERGE_MANIFESTS: "true"
    }
    assert retention_of(properties_to_add({})) is None


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {MIN_SNAPSHOTS: "5"},
        {MAX_SNAPSHOT_AGE_MS: "soon"},
        {MAX_SNAPSHOT_AGE_MS: "-1"},
        {MAX_SNAPSHOT_AGE_MS: "1", MIN_SNAPSHOTS: "0"},
        {MAX_SNAPSHOT_AGE_MS: "1", GC_ENABLED: "false"},
    ],
)
def test_without_a_clear_word_nothing_expires(properties: dict[str, str]) -> None:
    assert retention_of(properties) is None


def test_one_snapshot_stays_as_iceberg_has_it() -> None:
    assert retention_of({MAX_SNAPSHOT_AGE_MS: "7"}) == Retention(max_age_ms=7, min_snapshots=1)


NOW_MS = 100 * STAGED_AGE_MS
TWO_OR_YOUNG = Retention(max_age_ms=1000, min_snapshots=2)


def line(first: int, last: int, newest_age_ms: int, parent: int | None = None) -> list[SnapshotAge]:
    """Snapshots that follow each other, each ten seconds older than the next."""
    return [
        SnapshotAge(
            snapshot_id=one,
            parent_id=parent if one == first else one - 1,
            timestamp_ms=NOW_MS - newest_age_ms - 10_000 * (last - one),
        )
        for one in range(first, last + 1)
    ]


def test_the_newest_and_the_young_of_a_branch_stay() -> None:
    main = RefLimits(snapshot_id=5, is_branch=True)
    assert expired_ids(line(1, 5, 5_000), [main], TWO_OR_YOUNG, NOW_MS) == [1, 2, 3]
    assert expired_ids(line(1, 5, 0), [main], Retention(max_age_ms=25_000, min_snapshots=1), NOW_MS) == [1, 2]


def test_tags_and_limits_of_a_branch_hold() -> None:
    refs = [
        RefLimits(snapshot_id=5, is_branch=True, max_age_ms=15_000, min_snapshots=1),
        RefLimits(snapshot_id=2, is_branch=False),
    ]
    assert expired_ids(line(1, 5, 0), refs, TWO_OR_YOUNG, NOW_MS) == [1, 3]


def test_what_no_branch_has_stays_for_a_day() -> None:
    main = RefLimits(snapshot_id=5, is_branch=True)
    staged = line(10, 10, STAGED_AGE_MS - 1, parent=5)
    lost = line(11, 11, STAGED_AGE_MS + 1, parent=5)
    snapshots = [*line(1, 5, 5_000), *staged, *lost]
    assert expired_ids(snapshots, [main], TWO_OR_YOUNG, NOW_MS) == [1, 2, 3, 11]
