"""A table keeps the mode in which it has a topic."""

import pytest

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.export_mode import ExportMode, check_mode, check_reconcilable, property_of
from kafscale.lake.export_state import ExportState

EXPORTED = ExportState(topic="prices", topic_id="t", commit_id="c")
UPSERTED = {property_of("prices"): "upsert"}


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [
        ({}, ExportMode.APPEND),
        (UPSERTED, ExportMode.UPSERT),
        ({property_of("other"): "upsert"}, ExportMode.APPEND),
    ],
)
def test_the_mode_of_before_is_legal(properties: dict[str, str], wanted: ExportMode) -> None:
    check_mode("local.db.t", properties, EXPORTED, wanted)


@pytest.mark.parametrize(
    ("properties", "wanted", "said"),
    [
        ({}, ExportMode.UPSERT, "with --mode append, and not with --mode upsert"),
        (UPSERTED, ExportMode.APPEND, "with --mode upsert, and not with --mode append"),
        (
            {property_of("prices"): "later"},
            ExportMode.UPSERT,
            "with --mode later, and not with --mode upsert",
        ),
    ],
)
def test_another_mode_is_refused(properties: dict[str, str], wanted: ExportMode, said: str) -> None:
    with pytest.raises(TableRefusedError, match=rf"table local.db.t has topic 'prices' {said}"):
        check_mode("local.db.t", properties, EXPORTED, wanted)


def test_a_table_without_the_topic_takes_any_mode() -> None:
    check_mode("local.db.t", {property_of("other"): "upsert"}, ExportState(topic="prices"), ExportMode.UPSERT)


def test_a_table_with_one_row_for_each_key_is_not_compared() -> None:
    check_reconcilable("local.db.t", "orders", UPSERTED)
    with pytest.raises(SettingError, match=r"has one row for each key of topic 'prices' \(--mode upsert\)"):
        check_reconcilable("local.db.t", "prices", UPSERTED)
