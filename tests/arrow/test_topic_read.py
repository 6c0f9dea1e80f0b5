"""`kafscale.read` on a data folder: the rows are those of Spark's source, whatever was asked for."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafscale
from kafscale.arrow.columns import arrow_schema
from kafscale.errors import CorruptDataError, OffsetsGoneError, SettingError, StartupError
from kafscale.formats.object_keys import index_key_of
from kafscale.protocol.compression import CODECS, Codec
from kafscale.reader.bounds import ReadOptionError
from kafscale.reader.topic_batches import ReadProgress
from kafscale.reader.topic_state import UnknownTopicError
from tests.spark_jobs.support.memory_topic import make_segments_large
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Batch, Sent, batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(offset: int) -> datetime:
    """The time of the record with this offset."""
    return EPOCH + timedelta(milliseconds=FIRST_TIMESTAMP_MS + offset)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> TopicWriter:
    """Three partitions with all kinds of records, in segments, a gathered object and entries."""
    writer = TopicWriter(embedded(tmp_path_factory.mktemp("orders")), "orders", partitions=3)
    for partition, codec in enumerate(CODECS[:3]):
        for _ in range(3):
            writer.append(partition, sent(20, f"{codec.name}-{partition}"), codec, batch_records=7)
    writer.append(1, [Sent(key=b"gone", headers=(("a", b"1"), ("b", None)), gap=5)], Codec.ZSTD)
    writer.merge(2, 20)
    writer.append_batches(0, [Batch(records=sent(1), is_control=True)])
    writer.lead()
    writer.append_entry({one: batches_of(sent(4, "gathered"), Codec.LZ4) for one in range(3)})
    writer.gather()
    writer.append_entry({0: batches_of(sent(3, "entry")), 2: batches_of(sent(3, "entry"))})
    return writer


def read(writer: TopicWriter, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        kafscale.read(writer.settings.data_dir, "orders", **options).read_all().to_pylist()
    )
    return rows


def test_all_rows_partition_by_partition(orders: TopicWriter) -> None:
    reader = kafscale.read(orders.settings.data_dir, "orders")
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == arrow_schema(True)
    found = reader.read_all()
    found.validate(full=True)
    assert found.to_pylist() == orders.rows()


def test_offsets_for_all_partitions_and_for_some(orders: TopicWriter) -> None:
    assert read(orders, start=10, end=62) == [row for row in orders.rows() if 10 <= row["offset"] < 62]
    starts, ends = {0: 3, 2: 60}, {1: 9}
    assert read(orders, start=starts, end=ends) == [
        row
        for row in orders.rows()
        if starts.get(row["partition"], 0) <= row["offset"] < ends.get(row["partition"], 2**63)
    ]
    assert read(orders, start="latest") == []
    assert read(orders, start=2**40) == []


def test_times_are_those_of_the_first_record_not_older(orders: TopicWriter) -> None:
    between = [row for row in orders.rows() if at(15) <= row["timestamp"] < at(64)]
    assert read(orders, start=at(15), end=at(64)) == between
    assert read(orders, start=at(14) + timedelta(microseconds=1), end=at(64).isoformat()) == between
    assert read(orders, start=at(10_000)) == []
    assert read(orders, end=at(10_000)) == orders.rows()


def test_some_partitions_and_columns(orders: TopicWriter) -> None:
    names = ["value", "offset", "partition"]
    rows = [{name: row[name] for name in names} for row in orders.rows() if row["partition"] != 1]
    assert read(orders, partitions=[2, 0], columns=names) == rows
    assert read(orders, columns=["headers"]) == [{"headers": row["headers"]} for row in orders.rows()]


def test_a_read_is_a_snapshot(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    writer.append(0, sent(5))
    reader, before = kafscale.read(tmp_path, "orders"), writer.rows()
    writer.append(0, sent(5))
    assert reader.read_all().to_pylist() == before
    assert read(writer) == writer.rows()


def test_merged_or_sealed_meanwhile_is_read_where_it_is_now(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    for _ in range(3):
        writer.append(0, sent(5))
    writer.lead(1)
    for _ in range(3):
        writer.append(1, sent(5))
    reader = kafscale.read(tmp_path, "orders")
    writer.merge(0)
    writer.seal()
    assert reader.read_all().to_pylist() == writer.rows()


def test_large_segments_are_read_in_chunks_with_or_without_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_segments_large(monkeypatch)
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2, index_interval=10)
    for partition in range(2):
        for number in range(3):
            writer.append(partition, sent(100, f"large-{number}"), batch_records=4)
    (tmp_path / "objects" / index_key_of(writer.keys(0)[1])).unlink()
    assert read(writer) == writer.rows()
    assert read(writer, start=150, end=160) == [row for row in writer.rows() if 150 <= row["offset"] < 160]


def test_what_expires_before_it_is_read_is_an_error(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    for _ in range(3):
        writer.append(0, sent(5))
    reader = kafscale.read(tmp_path, "orders")
    writer.move_log_start(0, 10)
    with pytest.raises(
        OffsetsGoneError, match="offsets 0 to 4 of partition 0 of topic 'orders' are gone since"
    ):
        reader.read_all()


def test_an_expired_start_names_what_is_there(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    for _ in range(3):
        writer.append(0, sent(5))
    writer.move_log_start(0, 10)
    gone = "offsets 3 to 9 of partition 0 of topic 'orders' are gone: its log has the offsets 10 to 14"
    with pytest.raises(OffsetsGoneError, match=gone) as raised:
        read(writer, start=3)
    assert (raised.value.topic, raised.value.partition) == ("orders", 0)
    assert (raised.value.first_offset, raised.value.next_offset) == (3, 10)
    with pytest.raises(OffsetsGoneError, match="offsets 3 to 7 "):
        read(writer, start=3, end=8)
    assert read(writer, start=3, on_expired="earliest") == writer.rows()
    assert read(writer) == writer.rows()


def test_progress_comes_with_each_part(orders: TopicWriter) -> None:
    seen: list[ReadProgress] = []
    rows = read(orders, progress=seen.append)
    assert len(rows) == len(orders.rows())
    assert [one.offsets_done for one in seen] == sorted(one.offsets_done for one in seen)
    last = seen[-1]
    assert last.topic == "orders"
    assert last.offsets_done == last.offsets_total == sum(orders.log_end_offset(one) for one in range(3))
    assert 0 < last.bytes_done <= last.bytes_total


def test_a_reader_that_is_dropped_leaves_nothing_open(orders: TopicWriter) -> None:
    def threads() -> set[str]:
        return {one.name for one in threading.enumerate() if "kafscale" in one.name}

    reader = kafscale.read(orders.settings.data_dir, "orders")
    assert not threads()
    reader.read_next_batch()
    del reader
    gc.collect()
    assert not threads()


def test_within_a_running_event_loop(orders: TopicWriter) -> None:
    async def in_a_notebook() -> int:
        found: int = kafscale.read(orders.settings.data_dir, "orders").read_all().num_rows
        return found

    assert asyncio.run(in_a_notebook()) == len(orders.rows())


def test_a_damaged_segment_is_named_with_its_offsets(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders")
    writer.append(0, sent(5))
    writer.append(0, sent(5))
    (key,) = writer.keys(0)[1:]
    file = tmp_path / "objects" / key
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)
    assert len(read(writer, end=5)) == 5
    with pytest.raises(CorruptDataError, match=rf"{key}.*offsets 5 to 9 of partition 0 of topic 'orders'"):
        read(writer)
    file.unlink()
    with pytest.raises(OffsetsGoneError, match=rf"offsets 5 to 9 .*no object '{key}'"):
        read(writer)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"topic": "order"}, UnknownTopicError, "no topic 'order' .*did you mean orders"),
        ({"topic": "zebra"}, UnknownTopicError, "no topic 'zebra' .*it has orders"),
        ({"topic": "a b"}, ReadOptionError, "topic='a b' is not legal"),
        ({"partitions": [3]}, UnknownTopicError, "no partition 3: legal are 0 to 2"),
        ({"partitions": []}, ReadOptionError, r"partitions=\[\] is not legal"),
        ({"partitions": "0"}, ReadOptionError, "partitions='0' is not legal"),
        ({"partitions": 0}, ReadOptionError, "partitions=0 is not legal"),
        ({"columns": ["key", "size"]}, ReadOptionError, "columns=.*some of key, value, topic"),
        ({"columns": []}, ReadOptionError, "columns="),
        ({"start": {7: 0}}, ReadOptionError, "start names partition 7.* 0 to 2"),
        ({"start": 5, "end": 4}, ReadOptionError, "start=5 and end=4 are not legal for partition 0"),
        (
            {"start": "2026-11-26T13:00:00Z", "end": "2026-11-26T12:00:00Z"},
            ReadOptionError,
            r"start=Unix time \d+ ms and end=.*the end must not lie before the start",
        ),
        ({"start": {1: 900}}, ReadOptionError, "start=900 is not legal for partition 1 .*offsets 0 to 69"),
        ({"on_expired": "latest"}, ReadOptionError, "on_expired='latest' .*error or earliest"),
        ({"settings": {"KAFSCALE_S3_BUKET": "b"}}, ReadOptionError, "did you mean KAFSCALE_S3_BUCKET"),
        ({"settings": {"KAFSCALE_DATA_DIR": "b"}}, ReadOptionError, "leave that out"),
        ({"settings": {"KAFSCALE_S3_NAMESPACE": "_"}}, SettingError, "KAFSCALE_S3_NAMESPACE"),
        ({"settings": {"KAFSCALE_S3_NAMESPACE": "other"}}, StartupError, "'other' .* is no cluster's"),
    ],
)
def test_parameters_that_are_not_legal_are_named(
    orders: TopicWriter, options: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        kafscale.read(orders.settings.data_dir, **{"topic": "orders", **options})


@pytest.mark.parametrize(
    ("source", "error", "named"),
    [
        ("/nowhere/at/all", StartupError, "/nowhere/at/all is not there"),
        (__file__, StartupError, "is no folder"),
        ("hdfs://a/b", ReadOptionError, "'hdfs://a/b' is not legal"),
        ("s3://", ReadOptionError, "'s3://'"),
        ("s3://bucket/a/b", ReadOptionError, "NAMESPACE"),
        ("", ReadOptionError, "source='' is not legal"),
        (7, ReadOptionError, "source=7 is not legal"),
    ],
)
def test_sources_that_are_not_legal_are_named(source: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        kafscale.read(source, "orders")


def test_a_folder_without_a_metadata_file(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=str(tmp_path)):
        kafscale.read(tmp_path, "orders")


def test_a_folder_above_the_data_names_the_one_below(tmp_path: Path) -> None:
    (tmp_path / "kafscale-data").mkdir()
    (tmp_path / "kafscale-data" / "metadata.db").touch()
    with pytest.raises(StartupError, match="kafscale-data in it has: name that one"):
        kafscale.read(tmp_path, "orders")


def test_the_settings_of_the_environment(orders: TopicWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_DATA_DIR", str(orders.settings.data_dir))
    monkeypatch.setenv("KAFSCALE_FRAME_MAX_BYTES", "not a reader's matter")
    assert kafscale.read(None, "orders").read_all().num_rows == len(orders.rows())


def test_what_reads_arrow_reads_it_by_its_interface(orders: TopicWriter) -> None:
    """DuckDB, Polars and others take the C stream of the reader."""
    stream = kafscale.read(orders.settings.data_dir, "orders")
    assert pa.RecordBatchReader.from_stream(stream).read_all().to_pylist() == orders.rows()
    frame = kafscale.read(orders.settings.data_dir, "orders").read_pandas()
    assert list(frame["offset"]) == [row["offset"] for row in orders.rows()]


def test_without_polars_the_error_says_what_to_install(
    orders: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"kafscale.to_polars needs Polars: pip install polars"):
        kafscale.to_polars(kafscale.read(orders.settings.data_dir, "orders"))


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(sys.modules):
        if name.startswith("kafscale.arrow"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    yield


@pytest.mark.usefixtures("without_pyarrow")
def test_without_the_extra_the_error_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"kafscale.read needs pyarrow: pip install 'kafscale\[arrow\]'"):
        kafscale.read("folder", "orders")
