"""The properties that keep metadata small are set where nobody has said otherwise."""

import pytest

from kafscale.lake.table_care import (
    DELETE_OLD_METADATA,
    GC_ENABLED,
    MAX_SNAPSHOT_AGE_MS,
    MIN_SNAPSHOTS,
    PREVIOUS_VERSIONS,
    Retention,
    properties_of_new_table,
    properties_to_add,
    retention_of,
)


def test_a_new_table_lets_go_of_old_snapshots() -> None:
    assert retention_of(properties_of_new_table()) == Retention(max_age_ms=6 * 3_600_000, min_snapshots=100)


def test_a_table_that_is_there_keeps_its_snapshots_and_what_it_says() -> None:
    assert properties_to_add({}) == {DELETE_OLD_METADATA: "true", PREVIOUS_VERSIONS: "20"}
    assert properties_to_add({DELETE_OLD_METADATA: "false", PREVIOUS_VERSIONS: "5"}) == {}
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
