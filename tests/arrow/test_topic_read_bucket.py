"""`kafscale.read` on a bucket of a real S3 server: with etcd, with the bucket alone, and what can be wrong."""

from collections.abc import Iterator

import pytest

import kafscale
from kafscale.errors import CorruptDataError, StartupError, StoreRefusedError
from kafscale.protocol.compression import Codec
from kafscale.reader.topic_state import UnknownTopicError
from kafscale.settings.broker import Settings, load_settings
from tests.spark_jobs.support.sent_records import batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter
from tests.support.etcd_server import EtcdServer, etcd_server, skip_without_etcd
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    missing = s3_server_missing()
    if missing is not None:
        pytest.skip(missing)
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    skip_without_etcd()
    with etcd_server(tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture(scope="module")
def settings(server: S3Server, etcd: EtcdServer) -> Settings:
    return load_settings(
        {**server.settings, "KAFSCALE_S3_NAMESPACE": "prod", "KAFSCALE_ETCD_ENDPOINTS": etcd.endpoint}
    )


@pytest.fixture(scope="module")
def orders(settings: Settings) -> TopicWriter:
    """Segments, a gathered object, and an entry."""
    writer = TopicWriter(settings, "orders", partitions=2)
    for partition in range(2):
        writer.append(partition, sent(10), Codec.SNAPPY, batch_records=3)
    writer.lead()
    writer.append_entry({0: batches_of(sent(3, "one")), 1: batches_of(sent(4, "two"))})
    writer.gather()
    writer.append(0, sent(2, "three"))
    return writer


def options(server: S3Server, **more: str) -> dict[str, str]:
    """The server's settings beside the bucket, as keywords give them."""
    return {name: value for name, value in server.settings.items() if name != "KAFSCALE_S3_BUCKET"} | more


def test_with_etcd(server: S3Server, etcd: EtcdServer, orders: TopicWriter) -> None:
    given = options(server, KAFSCALE_ETCD_ENDPOINTS=etcd.endpoint)
    found = kafscale.read(f"s3://{server.bucket}/prod", "orders", settings=given)
    assert found.read_all().to_pylist() == orders.rows()


def test_with_the_environment_s_settings(
    server: S3Server, orders: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KAFSCALE_S3_BUCKET", "another")
    found = kafscale.read(f"s3://{server.bucket}/prod", "orders", start=5)
    assert found.read_all().to_pylist() == [row for row in orders.rows() if row["offset"] >= 5]


def test_the_bucket_alone(server: S3Server, orders: TopicWriter) -> None:
    found = kafscale.read(f"s3://{server.bucket}/prod", "orders", settings=options(server))
    assert found.read_all().to_pylist() == orders.rows()


def test_the_bucket_alone_names_what_is_damaged(server: S3Server, settings: Settings) -> None:
    writer = TopicWriter(settings, "broken")
    writer.append(0, sent(5))
    writer.append(0, sent(5))
    file = server.bucket_folder / writer.keys(0)[1]
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    source, given = f"s3://{server.bucket}/prod", options(server)
    assert kafscale.read(source, "broken", end=5, settings=given).read_all().num_rows == 5
    with pytest.raises(CorruptDataError, match=rf"{writer.keys(0)[1]}.*offsets 5 to 9"):
        kafscale.read(source, "broken", settings=given)


def test_what_is_wrong_with_a_bucket_is_named(
    server: S3Server, etcd: EtcdServer, orders: TopicWriter
) -> None:
    given = options(server)
    with pytest.raises(
        UnknownTopicError, match=f"no object of a topic 'nothing' in s3://{server.bucket}/prod"
    ):
        kafscale.read(f"s3://{server.bucket}/prod", "nothing", settings=given)
    with pytest.raises(UnknownTopicError, match="namespace 'other', which is no cluster's"):
        kafscale.read(f"s3://{server.bucket}/other", "orders", settings=given)
    with pytest.raises(StoreRefusedError, match="no-such-bucket"):
        kafscale.read("s3://no-such-bucket/prod", "orders", settings=given)
    with pytest.raises(StoreRefusedError):
        kafscale.read(
            f"s3://{server.bucket}/prod", "orders", settings={**given, "KAFSCALE_S3_SECRET_KEY": "wrong"}
        )
    with pytest.raises(StartupError, match=r"'other' of the object store .* is no cluster's"):
        kafscale.read(
            f"s3://{server.bucket}/other",
            "orders",
            settings={
                **given,
                "KAFSCALE_ETCD_ENDPOINTS": etcd.endpoint,
                "KAFSCALE_ETCD_PREFIX": "/kafscale/prod",
            },
        )
