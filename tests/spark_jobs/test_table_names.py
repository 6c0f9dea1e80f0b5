"""Tables are named in full, and a name that is not is refused with what is missing."""

import pytest

from kafscale.errors import SettingError
from spark_jobs.table_names import parse_table_name


def test_a_name_has_a_catalog_a_namespace_of_any_depth_and_a_table() -> None:
    name = parse_table_name("--table", " lake.raw.web-shop.events_1 ")
    assert (name.catalog, name.namespace, name.table) == ("lake", ("raw", "web-shop"), "events_1")
    assert str(name) == "lake.raw.web-shop.events_1"


@pytest.mark.parametrize(
    "text", ["", "events", "local..events", "local.db.", "local.db.a b", "local.db.`a.b`"]
)
def test_what_is_no_full_name_is_refused_with_what_is_legal(text: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_table_name("--dead-letter-table", text)
    assert f"--dead-letter-table {text!r} is not legal" in str(refused.value)
    assert "catalog.namespace.table" in str(refused.value)


def test_a_name_without_a_catalog_gets_a_proposal() -> None:
    with pytest.raises(SettingError, match=r"did you mean local\.db\.events\?"):
        parse_table_name("--table", "db.events")
