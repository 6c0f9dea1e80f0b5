"""Any topic, whatever brokers made of its objects, is read as it was written: with its metadata store and without."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafscale.arrow.topic_read import planned_reader
from kafscale.protocol.compression import CODECS
from kafscale.reader.bucket_alone import BucketAlone
from kafscale.reader.requests import plan_of, request_of
from kafscale.reader.sources import ReadSource, StoresSource
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

PARTITIONS = 2
STEPS = (
    "append",
    "append",
    "append",
    "lead",
    "gather",
    "seal",
    "consolidate",
    "merge",
    "checkpoint",
    "expire",
)

values = st.none() | st.binary(max_size=40)
records = st.lists(
    st.builds(
        Sent,
        key=values,
        value=values,
        headers=st.lists(st.tuples(st.sampled_from(["a", "ü"]), values), max_size=2).map(tuple),
        gap=st.sampled_from([0, 0, 0, 1, 7]),
        timestamp_ms=st.none() | st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=12,
)


def step(writer: TopicWriter, data: st.DataObject) -> None:
    partition = data.draw(st.integers(0, PARTITIONS - 1))
    match data.draw(st.sampled_from(STEPS)):
        case "append":
            size = data.draw(st.integers(1, 5))
            # Offsets are left out within a batch, as compaction leaves them out, not before one.
            chosen = [
                replace(one, gap=one.gap if number % size else 0)
                for number, one in enumerate(data.draw(records))
            ]
            writer.append(
                partition,
                chosen,
                data.draw(st.sampled_from(CODECS)),
                batch_records=size,
                log_append_time_ms=data.draw(st.none() | st.integers(0, 2**41)),
            )
        case "lead":
            writer.lead()
        case "gather" if writer.is_led:
            writer.gather()
        case "seal" if writer.is_led:
            writer.seal()
        case "consolidate" if writer.is_led:
            writer.consolidate()
        case "merge" if len(writer.keys(partition)) > 1:
            writer.merge(partition)
        case "checkpoint" if writer.keys(partition):
            writer.write_checkpoint(partition)
        case "expire" if writer.stored(partition):
            # To the first record of a segment or slice, as retention does.
            starts = writer.run(lambda topic: topic.references(partition))
            begins = data.draw(st.sampled_from([one.base_offset for one in starts]))
            writer.move_log_start(partition, begins)


def rows(source: ReadSource, first_offset: int, next_offset: int) -> list[dict[str, object]]:
    request = request_of("events", start=first_offset, end=next_offset, on_expired="earliest")
    found = planned_reader(source, plan_of(source, request)).read_all()
    found.validate(full=True)
    read: list[dict[str, object]] = found.to_pylist()
    return read


# Not shrunk: an example takes half a second.
@given(data=st.data())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate]
)
def test_what_was_written_is_read(data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        writer = TopicWriter(embedded(folder), "events", partitions=PARTITIONS)
        for _ in range(data.draw(st.integers(1, 8))):
            step(writer, data)
        first_offset = data.draw(st.sampled_from([0, 0, 5]))
        next_offset = data.draw(st.sampled_from([2**62, 2**62, 20]))
        expected = [row for row in writer.rows() if first_offset <= row["offset"] < next_offset]
        assert rows(StoresSource(writer.settings), first_offset, next_offset) == expected
        if any(writer.has_objects(one) for one in range(PARTITIONS)):
            assert rows(BucketAlone(writer.settings, "events"), first_offset, next_offset) == expected
    finally:
        shutil.rmtree(folder)
