"""A read takes little memory, however large the topic is."""

import os
from pathlib import Path

import pytest

import kafscale
from bench.process import memory
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

MIB = 1024 * 1024
SEGMENTS, SEGMENT_BYTES = 20, 12 * MIB
VALUE = bytes(range(256)) * 256
# Requests in flight, batches in use, room for what else the process does; a third of the topic (docs/read-topics.md).
MOST_BYTES = 80 * MIB


@pytest.mark.nightly
def test_a_read_keeps_little_of_the_topic_in_memory(tmp_path: Path) -> None:

    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    records = [Sent(value=VALUE)] * (SEGMENT_BYTES // len(VALUE))
    for number in range(SEGMENTS):
        writer.append(number % 2, records, batch_records=16)
    kafscale.read(tmp_path, "orders", end=1).read_all()
    before = most = memory(os.getpid()).resident_bytes
    count = 0
    for batch in kafscale.read(tmp_path, "orders"):
        count += batch.num_rows
        most = max(most, memory(os.getpid()).resident_bytes)
    assert count == SEGMENTS * len(records)
    assert most - before < MOST_BYTES
