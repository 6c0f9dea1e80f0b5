"""The data source over a cluster's stores: etcd and a bucket, named by options alone."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from kafscale.protocol.compression import Codec
from kafscale.settings.broker import Settings
from spark_jobs.source.data_source import KafscaleDataSource
from tests.spark_jobs.support.sent_records import batches_of, sent
from tests.spark_jobs.support.source_queries import rows_of_partitions
from tests.spark_jobs.support.topic_writer import TopicWriter
from tests.support.etcd_server import etcd_server, skip_without_etcd
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, s3_server


def test_a_batch_and_a_stream(tmp_path: Path) -> None:
    skip_without_etcd()
    missing = s3_server_missing()
    if missing is not None:
        pytest.skip(missing)
    with etcd_server(tmp_path / "etcd") as etcd, s3_server(tmp_path / "s3") as server:
        settings = Settings(
            etcd_endpoints=(etcd.endpoint,),
            s3_bucket=server.bucket,
            s3_endpoint=server.endpoint,
            s3_region=REGION,
            s3_access_key=ACCESS_KEY,
            s3_secret_key=SECRET_KEY,
            s3_namespace="prod",
        )
        writer = TopicWriter(settings, "events", partitions=2)
        for partition in range(2):
            writer.append(partition, sent(5), Codec.SNAPPY)
        writer.lead()
        writer.append_entry({0: batches_of(sent(3, "one")), 1: batches_of(sent(4, "two"))})
        writer.append(0, sent(2, "three"))
        given: Any = CaseInsensitiveDict(
            {
                "etcd": etcd.endpoint,
                "bucket": server.bucket,
                "endpoint": server.endpoint,
                "region": REGION,
                "namespace": "prod",
                "KAFSCALE_S3_ACCESS_KEY": ACCESS_KEY,
                "KAFSCALE_S3_SECRET_KEY": SECRET_KEY,
                "subscribe": "events",
                "startingOffsets": "earliest",
            }
        )
        source = KafscaleDataSource(given)
        batch = source.reader(source.schema())
        assert rows_of_partitions(batch, batch.partitions()) == writer.rows()
        stream = source.streamReader(source.schema())
        first = stream.latestOffset()
        assert rows_of_partitions(stream, stream.partitions(stream.initialOffset(), first)) == writer.rows()
        more = writer.append(1, sent(2, "more"))
        assert rows_of_partitions(stream, stream.partitions(first, stream.latestOffset())) == [
            one.row() for one in more
        ]
        stream.stop()
