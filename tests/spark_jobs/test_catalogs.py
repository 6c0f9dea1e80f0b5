"""The catalog options, as Iceberg takes them."""

from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import SettingError
from kafscale.settings.broker import load_settings
from spark_jobs.catalogs import S3_FILE_IO, Catalog, CatalogOptions, resolve_catalogs

IN_S3 = {
    "KAFSCALE_S3_BUCKET": "topics",
    "KAFSCALE_S3_ENDPOINT": "http://127.0.0.1:9000",
    "KAFSCALE_S3_ACCESS_KEY": "id",
    "KAFSCALE_S3_SECRET_KEY": "hush",
}


def resolve(
    *tables: str,
    settings: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> dict[str, dict[str, str]]:
    catalogs = resolve_catalogs(
        CatalogOptions(**options), tables, load_settings(settings or {}), environment or {}
    )
    return {catalog.name: dict(catalog.properties) for catalog in catalogs}


def test_a_warehouse_alone_is_a_hadoop_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("local.db.events", "local.db.dead", warehouse="lake") == {
        "local": {"type": "hadoop", "warehouse": str(tmp_path / "lake")}
    }


def test_properties_and_types_go_to_the_catalog_they_name() -> None:
    assert resolve(
        "lake.db.events",
        "dead.db.letters",
        warehouse="s3://bucket/tables",
        catalogs=["lake=glue"],
        properties=["lake.glue.id=123", "dead.type=rest", "dead.uri=http://rest:8181/a=b"],
    ) == {
        "lake": {
            "type": "glue",
            "glue.id": "123",
            "warehouse": "s3://bucket/tables",
            "io-impl": S3_FILE_IO,
        },
        "dead": {"type": "rest", "uri": "http://rest:8181/a=b"},
    }


def test_a_class_is_a_type_too() -> None:
    assert resolve("lake.db.t", catalogs=["lake=com.example.MyCatalog"], properties=["lake.x=1"]) == {
        "lake": {"catalog-impl": "com.example.MyCatalog", "x": "1"}
    }


def test_a_catalog_without_options_is_sparks_own() -> None:
    assert resolve("lake.db.events") == {"lake": {}}
    assert Catalog(name="lake").configuration() == {}


def test_a_catalog_becomes_sparks_configuration() -> None:
    assert Catalog(name="lake", properties={"type": "rest"}).configuration() == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
    }


def test_a_value_may_be_in_the_environment() -> None:
    found = resolve(
        "lake.db.t",
        catalogs=["lake=jdbc"],
        warehouse="/tables",
        properties=["lake.uri=jdbc:sqlite:x", "lake.jdbc.password=env:PASSWORD"],
        environment={"PASSWORD": "hush"},
    )
    assert found["lake"]["jdbc.password"] == "hush"
    with pytest.raises(SettingError, match="no PASSWORD in the environment"):
        resolve("lake.db.t", properties=["lake.jdbc.password=env:PASSWORD"])


class TestWarehouseInS3:
    """It is reached as the topics' bucket is, unless the options say otherwise."""

    def test_it_takes_endpoint_region_and_keys_from_the_bucket(self) -> None:
        found = resolve("lake.db.t", catalogs=["lake=glue"], warehouse="s3://b/t", settings=IN_S3)
        assert found["lake"] == {
            "type": "glue",
            "warehouse": "s3://b/t",
            "io-impl": S3_FILE_IO,
            "s3.endpoint": "http://127.0.0.1:9000",
            "s3.path-style-access": "true",
            "s3.access-key-id": "id",
            "s3.secret-access-key": "hush",
            "client.region": "us-east-1",
        }

    def test_a_region_that_the_platform_says_is_not_overridden(self) -> None:
        found = resolve(
            "lake.db.t",
            catalogs=["lake=glue"],
            warehouse="s3://b/t",
            settings=IN_S3,
            environment={"AWS_REGION": "eu-central-1"},
        )
        assert "client.region" not in found["lake"]

    def test_given_keys_are_not_mixed_with_others(self) -> None:
        found = resolve(
            "lake.db.t",
            catalogs=["lake=glue"],
            warehouse="s3://b/t",
            properties=["lake.s3.access-key-id=other", "lake.s3.secret-access-key=own"],
            settings=IN_S3 | {"KAFSCALE_S3_SESSION_TOKEN": "token"},
        )
        assert found["lake"]["s3.access-key-id"] == "other"
        assert "s3.session-token" not in found["lake"]

    def test_of_another_endpoint_the_settings_say_nothing(self) -> None:
        found = resolve(
            "lake.db.t",
            catalogs=["lake=glue"],
            warehouse="s3://b/t",
            properties=["lake.s3.endpoint=http://elsewhere:1"],
            settings=IN_S3,
        )
        assert found["lake"] == {
            "type": "glue",
            "warehouse": "s3://b/t",
            "io-impl": S3_FILE_IO,
            "s3.endpoint": "http://elsewhere:1",
        }

    def test_a_hadoop_catalog_is_refused_there(self) -> None:
        with pytest.raises(
            SettingError, match=r"'s3://b/t' is not legal for the Hadoop catalog 'local'.*jdbc"
        ):
            resolve("local.db.t", warehouse="s3://b/t")
        locked = resolve("local.db.t", warehouse="s3://b/t", properties=["local.lock-impl=x.Lock"])
        assert locked["local"]["type"] == "hadoop"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"catalogs": ["lake"]},
            "--catalog 'lake' is not legal: it must be NAME=TYPE, the type one of hadoop",
        ),
        ({"catalogs": ["lake=mysql"]}, "--catalog 'lake=mysql' is not legal"),
        (
            {"properties": ["lake.uri"]},
            "--catalog-property 'lake.uri' is not legal: it must be CATALOG.KEY=VALUE",
        ),
        ({"properties": ["uri=x"]}, "--catalog-property 'uri' is not legal"),
        ({"properties": ["s3.endpoint=x"]}, "there is no catalog 's3'; there is lake"),
        ({"properties": ["lake.uri=x"]}, "catalog 'lake' has no type: give --warehouse"),
        ({"properties": ["lake.type=mysql"]}, "lake.type='mysql' is not legal: it must be one of hadoop"),
        ({"catalogs": ["lake=a.B"], "properties": ["lake.type=rest"]}, "both type and catalog-impl"),
        (
            {"catalogs": ["lake=jdbc"]},
            "catalog 'lake' of type jdbc needs uri: give --catalog-property lake.uri",
        ),
        (
            {"catalogs": ["lake=jdbc"], "properties": ["lake.uri=x"]},
            "needs warehouse: give --catalog-property lake.warehouse=... or --warehouse",
        ),
        ({"warehouse": " "}, "--warehouse '' is not legal"),
        ({"warehouse": "/a", "properties": ["lake.warehouse=/b"]}, "are the same: give one of them"),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        resolve("lake.db.events", **options)
    assert said in str(refused.value)


def test_no_message_shows_a_value_that_may_be_secret() -> None:
    with pytest.raises(SettingError) as refused:
        resolve("lake.db.events", properties=["s3.secret-access-key=hush"])
    assert "hush" not in str(refused.value)
