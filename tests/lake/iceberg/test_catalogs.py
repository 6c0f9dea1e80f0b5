"""Catalogs, from the command line's words to pyiceberg's properties."""

from pathlib import Path

import pytest

from kafscale.errors import SettingError
from kafscale.lake.iceberg.catalogs import choose_catalog
from kafscale.settings.broker import Settings

NONE = Settings()
BUCKET = Settings(
    s3_bucket="records",
    s3_endpoint="http://store:9000",
    s3_access_key="key",
    s3_secret_key="secret",
    s3_path_style=True,
)


def test_a_folder_has_its_own_database(tmp_path: Path) -> None:
    found = choose_catalog(str(tmp_path / "lake"), "local", [], NONE, {})
    assert found.folder == tmp_path / "lake"
    assert found.properties == {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/lake/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }


def test_a_folder_with_a_database_elsewhere(tmp_path: Path) -> None:
    found = choose_catalog(f"file://{tmp_path}", "lake", ["uri=env:URI"], NONE, {"URI": "postgresql://db/x"})
    assert found.name == "lake"
    assert found.folder is None
    assert found.properties["uri"] == "postgresql://db/x"


def test_a_bucket_takes_the_settings_of_the_topics() -> None:
    found = choose_catalog("s3://lake/tables", "local", ["uri=sqlite:////c.db"], BUCKET, {})
    assert found.properties == {
        "type": "sql",
        "uri": "sqlite:////c.db",
        "warehouse": "s3://lake/tables",
        "s3.endpoint": "http://store:9000",
        "s3.force-virtual-addressing": "false",
        "s3.region": "us-east-1",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
    }


def test_another_servers_bucket_does_not() -> None:
    given = ["uri=https://catalog/", "s3.endpoint=https://other", "s3.access-key-id=own"]
    found = choose_catalog("s3://lake/tables", "local", given, BUCKET, {})
    assert found.properties == {
        "type": "rest",
        "uri": "https://catalog/",
        "warehouse": "s3://lake/tables",
        "s3.endpoint": "https://other",
        "s3.access-key-id": "own",
    }


def test_a_rest_server_and_a_configured_catalog() -> None:
    served = choose_catalog("https://catalog/", "lake", ["warehouse=prod"], NONE, {})
    assert served.properties == {"type": "rest", "uri": "https://catalog/", "warehouse": "prod"}
    configured = choose_catalog("catalog:prod", "local", [], NONE, {})
    assert (configured.name, configured.properties) == ("prod", {})


@pytest.mark.parametrize("to", ["", "  ", "gs://bucket/x", "s3://"])
def test_warehouses_that_are_not_legal(to: str) -> None:
    with pytest.raises(SettingError, match=r"--to .* is not legal: it must be a folder"):
        choose_catalog(to, "local", [], NONE, {})
