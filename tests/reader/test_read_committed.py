"""Reads of topics with transactions, by isolation level: wherever the batches lie, and whatever moves meanwhile."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import kafscale
from kafscale.arrow.record_columns import record_columns
from kafscale.arrow.split_columns import read_split
from kafscale.commands.cli import main
from kafscale.errors import ReadOptionError
from kafscale.lake.iceberg.records import FreeTopic
from kafscale.reader.aborted_batches import IsolationLevel
from kafscale.reader.requests import plan_of, source_of
from kafscale.reader.topic_batches import topic_batches
from kafscale.reader.topic_plan import ReadRequest
from tests.lake.support.transacting import TransactingTopics, Transaction

TOPIC = "orders"
A, B = (TOPIC, 0), (TOPIC, 1)


@pytest.fixture
def topics(tmp_path: Path) -> TransactingTopics:
    """Partition 0 ends with an open transaction, among others; what is older was aborted and committed."""
    topics = TransactingTopics(tmp_path / "data", TOPIC)
    aborted, committed = topics.begin(1), topics.begin(2)
    for one in (aborted, committed, aborted, None, committed):
        topics.send(one, A)
    topics.send(aborted, B)
    topics.end(aborted, is_commit=False)
    topics.end(committed, is_commit=True)
    again, left_open = topics.begin(1), topics.begin(3)
    topics.send(again, A)
    topics.send(left_open, A)
    topics.send(again, A)
    topics.end(again, is_commit=True)
    return topics


def read(topics: TransactingTopics, **options: Any) -> list[dict[str, Any]]:
    return as_rows(kafscale.read(topics.settings.data_dir, TOPIC, **options).read_all())


def as_rows(table: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in table.to_batches() for row in batch.to_pylist()]


def test_what_is_open_or_aborted_is_not_read(topics: TransactingTopics) -> None:
    found = read(topics)
    assert found == topics.committed()
    assert 0 < len(found) < len(topics.written())


def test_uncommitted_reads_bring_everything(topics: TransactingTopics) -> None:
    found = read(topics, isolation_level="read_uncommitted")
    assert found == topics.written()


def test_an_unknown_isolation_level_is_refused(topics: TransactingTopics) -> None:
    with pytest.raises(
        ReadOptionError, match="isolation_level='serializable' is not legal: it must be read_comm"
    ):
        read(topics, isolation_level="serializable")


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_cat_prints_by_the_isolation_level(topics: TransactingTopics, level: IsolationLevel) -> None:
    arguments = ["cat", TOPIC, "--source", str(topics.settings.data_dir), "--isolation-level", level.value]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    wanted = topics.committed() if level is IsolationLevel.READ_COMMITTED else topics.written()
    assert len(done.stdout.splitlines()) == len(wanted)


@pytest.mark.parametrize("change", ["consolidate", "gather", "seal", "write_checkpoint", "merge"])
def test_objects_that_change_after_the_plan(topics: TransactingTopics, change: str) -> None:
    source = source_of(topics.settings.data_dir, TOPIC, options={}, environment={})
    plan = plan_of(source, ReadRequest(topic=TOPIC))
    expected = [row["offset"] for row in topics.committed()]
    writer = topics.writers[TOPIC]
    move(writer, change)

    found = record_columns(topic_batches(source, plan), TOPIC, include_headers=False)
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == expected
    # A plan that is made now knows them by the record and the checkpoint.
    assert read(topics) == topics.committed()
    assert read(topics, isolation_level="read_uncommitted") == topics.written()


def move(writer: Any, change: str) -> None:
    if change in ("merge", "write_checkpoint"):
        for partition in range(writer.partitions):
            getattr(writer, change)(partition)
    else:
        getattr(writer, change)()


def test_a_record_tells_up_to_its_last_stable_offset(tmp_path: Path) -> None:
    """A range that ends below the record's log end may be decided in the journal behind it only."""
    topics = TransactingTopics(tmp_path / "data", TOPIC)
    aborted = topics.begin(1)
    topics.send(aborted, A)
    topics.send(None, A)
    topics.writers[TOPIC].consolidate()
    topics.end(aborted, is_commit=False)
    topic = FreeTopic(topics.settings, TOPIC)
    log = topic.log()
    assert log.partitions[0].end_offset == 5
    found = [row for batch in topic.records({0: ((0, 4),)}) for row in batch.to_pylist()]
    assert found == topics.committed()


def test_records_that_are_skipped_are_counted(topics: TransactingTopics) -> None:
    source = source_of(topics.settings.data_dir, TOPIC, options={}, environment={})
    plan = plan_of(source, ReadRequest(topic=TOPIC))
    skipped: list[int] = []
    brought = sum(
        batch.num_rows
        for split in plan.splits
        for batch in read_split(topics.settings, split, include_headers=False, on_skipped=skipped.append)
    )
    assert brought == len(topics.committed())
    # No offset is empty in these logs.
    assert brought + sum(skipped) == plan.offset_count


@pytest.mark.parametrize("seed", range(4))
def test_random_transactions_read_as_by_the_model(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    topics = TransactingTopics(tmp_path / "data", TOPIC)
    running: dict[int, Transaction] = {}
    for _ in range(60):
        producer = dice.randrange(4)
        one = running.get(producer)
        if one is None:
            running[producer] = topics.begin(producer)
        elif dice.random() < 0.3:
            topics.end(running.pop(producer), is_commit=dice.random() < 0.5)
        else:
            topics.send(dice.choice((one, one, None)), dice.choice(topics.places), dice.randint(1, 4))
        if dice.random() < 0.08:
            move(topics.writers[TOPIC], dice.choice(("consolidate", "gather", "seal", "write_checkpoint")))
    assert read(topics) == topics.committed(), f"seed {seed}"
    assert read(topics, isolation_level="read_uncommitted") == topics.written(), f"seed {seed}"
