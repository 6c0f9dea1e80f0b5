"""Tables in a bucket of a real S3 server, with a database as their catalog."""

from pathlib import Path

import pytest

from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.catalogs import s3_catalog
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, s3_server


def test_a_warehouse_in_a_bucket(
    exporter: LakeExporter, writer: TopicWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = s3_server_missing()
    if missing is not None:
        pytest.skip(missing)
    writer.append(0, sent(10))
    monkeypatch.setenv("SECRET_OF_THE_LAKE", SECRET_KEY)
    with s3_server(tmp_path / "s3") as server:
        exporter.catalog = s3_catalog(tmp_path / "catalog", server.endpoint, server.bucket, name="local")
        options = {
            "uri": f"sqlite:///{exporter.catalog.database}",
            "s3.endpoint": server.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": "env:SECRET_OF_THE_LAKE",
        }
        chosen = [part for key, value in options.items() for part in ("--catalog-property", f"{key}={value}")]
        written = exporter.export("--to", exporter.catalog.warehouse, *chosen)
        assert len(written.rows) == 10
        assert any(key.startswith("warehouse/kafka/shop_orders/data/") for key in server.stored_files())

        wrong = [part.replace("env:SECRET_OF_THE_LAKE", "wrong") for part in chosen]
        writer.append(0, sent(1, first=10))
        refused = exporter.run("--to", exporter.catalog.warehouse, *wrong)
        assert refused.status == 1
        assert "cannot read table kafka.shop_orders" in refused.text
        assert SECRET_KEY not in refused.text

        exporter.run("--to", exporter.catalog.warehouse, *chosen)
        assert len(exporter.read().rows) == 11
