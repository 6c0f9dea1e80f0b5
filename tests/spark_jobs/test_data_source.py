"""`format("kafscale")` in a real Spark session, which finds it by itself."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kafscale.protocol.compression import Codec
from spark_jobs.source.available_now import run_available_now
from spark_jobs.source.data_source import register
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC, wait_until

TIMEOUT_SEC = int(PATIENCE_SEC)  # which awaitTermination wants whole
WORKER_STARTS = 12  # attempts, each with the ten seconds that Spark gives a Python process


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    """Two partitions, every codec, nulls and headers: segments, slices that records name, and what is behind them."""
    topic = TopicWriter(embedded(tmp_path / "data"), "events", partitions=2)
    for number, codec in enumerate(Codec):
        if number == 2:
            topic.lead()
        topic.append(0, sent(7, first=7 * number), codec, batch_records=3)
    topic.consolidate()
    headers = (("a", b"1"), ("a", None))
    topic.append(1, [Sent(), Sent(value=b"with headers", headers=headers), Sent(key=b"", value=b"")])
    return topic


def load(spark: SparkSession, writer: TopicWriter, **options: str) -> DataFrame:
    given = {"dataDir": str(writer.settings.data_dir), "subscribe": writer.topic} | options
    return spark.read.format("kafscale").options(**given).load()


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    rows = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


# --- batch


def test_all_columns_of_all_records(spark: SparkSession, writer: TopicWriter) -> None:
    frame = load(spark, writer)
    assert rows_of(frame) == writer.rows()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )


def test_a_range_in_sql_over_many_tasks(spark: SparkSession, writer: TopicWriter) -> None:
    for first in range(0, 6, 2):
        writer.append(1, sent(2, first=first, value_bytes=70_000))
    frame = load(
        spark,
        writer,
        startingOffsets='{"events":{"0":4,"1":-2}}',
        endingOffsets='{"events":{"0":20,"1":-1}}',
        minPartitions="4",
        includeHeaders="false",
    )
    assert frame.rdd.getNumPartitions() >= 4
    frame.createOrReplaceTempView("read_events")
    found = spark.sql(
        "select partition, count(*), min(offset), max(offset) from read_events where offset > 5 group by 1 order by 1"
    ).collect()
    assert [tuple(row) for row in found] == [(0, 14, 6, 19), (1, 3, 6, 8)]


def test_a_wrong_option_is_refused_when_the_source_is_loaded(
    spark: SparkSession, writer: TopicWriter
) -> None:
    with pytest.raises(PySparkException, match="option subscribes is unknown, did you mean subscribe"):
        load(spark, writer, subscribes="events")


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, writer: TopicWriter) -> None:
    reader = spark.read.format("kafscale").schema("value string")
    frame = reader.options(dataDir=str(writer.settings.data_dir), subscribe="events").load()
    with pytest.raises(PySparkException, match="leave schema\\(\\) out"):
        frame.collect()


def test_what_expired_is_an_error_that_names_it(spark: SparkSession, writer: TopicWriter) -> None:
    writer.move_log_start(0, 7)
    start = '{"events":{"0":2,"1":0}}'
    with pytest.raises(PySparkException, match="offsets 2 to 6 of events-0 are gone: its log starts at 7"):
        load(spark, writer, startingOffsets=start).collect()
    assert load(spark, writer, startingOffsets=start, failOnDataLoss="false").count() == len(writer.rows())


@pytest.mark.nightly
@pytest.mark.every_spark
def test_it_can_be_registered_where_spark_does_not_find_it(spark: SparkSession, writer: TopicWriter) -> None:
    register(spark)
    assert load(spark, writer).count() == len(writer.rows())


# --- streaming

Process = Callable[[DataFrame, int], None]


@contextmanager
def streaming(
    spark: SparkSession, writer: TopicWriter, process: Process, options: dict[str, str], *, once: bool = False
) -> Iterator[StreamingQuery]:
    """A query that resumes from the checkpoint of the one before it; `once`: it ends by itself.

    Spark gives the Python process of a streaming source ten seconds to start, which no setting changes. Beside many
    other processes it may need more: a query that failed of that has read nothing, and is started again.
    """
    source = spark.readStream.format("kafscale").options(
        dataDir=str(writer.settings.data_dir), subscribe=writer.topic, **options
    )
    sink = source.load().writeStream.foreachBatch(process)
    sink = sink.option("checkpointLocation", str(writer.settings.data_dir / "checkpoint"))
    sink = sink.trigger(availableNow=True) if once else sink
    query = sink.start()
    for _ in range(WORKER_STARTS):
        if has_a_worker(query):
            break
        query.stop()
        query = sink.start()
    try:
        yield query
    finally:
        query.stop()


def has_a_worker(query: StreamingQuery) -> bool:
    """Wait until it has made a step or ended; false: it ended because the process of its source did not start."""
    wait_until(lambda: query.lastProgress is not None or not query.isActive, "a streaming query makes a step")
    error = query.exception()
    return error is None or "Python worker failed to connect back" not in str(error)


class Batches:
    """The output of a query's sink, by micro-batch; `dies_at`: the batch in which the sink fails, once."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.by_id: dict[int, list[dict[str, Any]]] = {}
        self._dies_at = dies_at

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = rows_of(frame)
        if batch_id == self._dies_at:
            self._dies_at = None
            raise RuntimeError("the sink fails")
        assert batch_id not in self.by_id
        self.by_id[batch_id] = rows

    def rows(self) -> list[dict[str, Any]]:
        rows = [row for batch in self.by_id.values() for row in batch]
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_a_growing_topic_in_limited_steps_and_after_a_restart(
    spark: SparkSession, writer: TopicWriter
) -> None:
    seen = Batches()
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}
    with streaming(spark, writer, seen, options) as query:
        query.processAllAvailable()
        assert seen.rows() == writer.rows()
        assert sorted(len(batch) for batch in seen.by_id.values()) == [14, 24]
        writer.append(1, sent(4))
        query.processAllAvailable()
        assert seen.rows() == writer.rows()
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(progress.json)["sources"][0]["endOffset"] == {
            "$topicIds": {"events": str(writer.topic_id())},
            "events": {"0": 35, "1": 7},
        }
    writer.append(0, sent(3))
    with streaming(spark, writer, seen, options) as query:
        query.processAllAvailable()
    assert seen.rows() == writer.rows()


@pytest.mark.nightly
def test_what_is_available_once_and_again_after_a_failure(spark: SparkSession, writer: TopicWriter) -> None:
    writer_rows_before = len(writer.rows())
    seen = Batches(dies_at=0)
    with (
        streaming(spark, writer, seen, {"startingOffsets": "latest"}, once=True) as query,
        pytest.raises(StreamingQueryException, match="the sink fails"),
    ):
        query.awaitTermination(TIMEOUT_SEC)
    # It started at the end: what comes now is its first record, although it asks for its start again.
    writer.append(0, sent(3))
    for _ in range(2):
        with streaming(spark, writer, seen, {"startingOffsets": "latest"}, once=True) as query:
            assert query.awaitTermination(TIMEOUT_SEC)
    assert len(seen.rows()) == 3
    assert seen.rows() == [row for row in writer.rows() if row["partition"] == 0 and row["offset"] >= 35]
    assert len(writer.rows()) == writer_rows_before + 3


@pytest.mark.nightly
def test_what_is_available_now_in_limited_steps(
    spark: SparkSession, writer: TopicWriter, tmp_path: Path
) -> None:
    """The next query reads records that come while this one runs."""
    seen = Batches()

    def see(frame: DataFrame, batch_id: int) -> None:
        seen(frame, batch_id)
        writer.append(1, sent(1))

    source = spark.readStream.format("kafscale").options(
        dataDir=str(writer.settings.data_dir), subscribe="events", startingOffsets="earliest"
    )
    frame = source.options(maxOffsetsPerTrigger="25", availableNow="true").load()
    sink = frame.writeStream.foreachBatch(see).option("checkpointLocation", str(tmp_path / "checkpoint"))
    available = writer.rows()
    assert not with_a_worker(lambda: run_available_now(sink), seen).isActive
    assert seen.rows() == available
    assert sorted(len(batch) for batch in seen.by_id.values()) == [14, 24]
    available = writer.rows()
    with_a_worker(lambda: run_available_now(sink), seen)
    assert seen.rows() == available


def with_a_worker(run: Callable[[], StreamingQuery], seen: Batches) -> StreamingQuery:
    """See `streaming`: the run again, if it ended before its source was there."""
    before = len(seen.by_id)
    for _ in range(WORKER_STARTS):
        try:
            return run()
        except StreamingQueryException:
            if len(seen.by_id) > before:
                raise
    return run()


@pytest.mark.nightly
def test_an_end_is_refused_in_a_stream(spark: SparkSession, writer: TopicWriter) -> None:
    with (
        streaming(spark, writer, Batches(), {"endingOffsets": "latest"}) as query,
        pytest.raises(StreamingQueryException, match="a stream has no end"),
    ):
        query.awaitTermination(TIMEOUT_SEC)
