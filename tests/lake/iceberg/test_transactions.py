"""Topics with transactions in tables: what a `read_committed` consumer finds; in atomic cuts whole ones only."""

import functools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafscale.commands.cli import main
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.lake import atomic_export
from kafscale.lake.topic_export import TopicExport
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from tests.lake.support.exports_by_config import Exports, Row, place_of
from tests.lake.support.transacting import TransactingTopics, Transaction
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.sent_records import Stored
from tests.spark_jobs.support.stored_topic import StoredTopic

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


async def switch_on(stored: StoredTopic, topic: str) -> None:
    held = await stored.metadata.get(keys.topic(topic))
    assert held is not None
    record = decode_topic_record(held.key, held.value)
    record.configs["kafscale.iceberg.enable"] = "true"  # type: ignore[index]
    await stored.metadata.transact([], [Put(held.key, encode_topic_record(record))])


def record_places(records: list[Stored]) -> set[Row]:
    return {(one.topic, one.partition, one.offset) for one in records}


def check_whole(topics: TransactingTopics, there: set[Row], said: object = "") -> None:
    for one in topics.all:
        wanted = record_places(one.records)
        found = wanted & there
        assert found in (set(), wanted) or not one.is_commit, f"{len(found)} of {len(wanted)}: {one} {said}"
        assert one.is_commit or not found, f"{one} is not committed {said}"


@pytest.fixture
def topics(tmp_path: Path) -> TransactingTopics:
    return TransactingTopics(tmp_path / "data", "a", "b")


@pytest.fixture
def exports(topics: TransactingTopics, tmp_path: Path, logging_as_before: None) -> Exports:
    for topic, writer in topics.writers.items():
        writer.run(functools.partial(switch_on, topic=topic))
    return Exports(topics.settings, topics.writers, tmp_path / "lake")


def walk(topics: TransactingTopics, dice: random.Random, running: dict[int, Transaction], steps: int) -> None:
    """Steps of producers, coordinator and leaders."""
    for _ in range(steps):
        producer_id = dice.randrange(4)
        one = running.get(producer_id)
        if one is None or (one.decision and not one.unmarked):
            running[producer_id] = topics.begin(producer_id)
        elif one.decision:
            topics.mark(one, dice.choice(one.unmarked))
        elif one.records and dice.random() < 0.4:
            topics.decide(one, is_commit=dice.random() < 0.7)
        else:
            topics.send(one if dice.random() < 0.85 else None, dice.choice((A0, A1, B0)), dice.randint(1, 2))


def settle(topics: TransactingTopics, running: dict[int, Transaction]) -> None:
    for one in running.values():
        if not one.decision:
            topics.decide(one, is_commit=True)
        for place in list(one.unmarked):
            topics.mark(one, place)


def test_a_table_is_what_a_consumer_reads(topics: TransactingTopics, exports: Exports) -> None:
    dice, running = random.Random(5), dict[int, Transaction]()
    for _ in range(3):
        walk(topics, dice, running, 25)
        exports.run("--quiet")
        assert exports.places() == {place_of(row) for row in topics.committed()}
        topics.writers["a"].seal()
    settle(topics, running)
    exports.run("--quiet")
    assert exports.places() == {place_of(row) for row in topics.committed()}


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))]
)
def test_no_snapshot_has_a_transaction_by_half(
    topics: TransactingTopics, exports: Exports, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, running = random.Random(seed), dict[int, Transaction]()
    look = TopicExport.look

    def looked(export: Any) -> Any:
        # Between the looks at the topics their producers go on.
        walk(topics, dice, running, 4)
        return look(export)

    monkeypatch.setattr(TopicExport, "look", looked)
    for _ in range(5):
        walk(topics, dice, running, 12)
        exports.run("--transactions", "atomic")
        check_whole(topics, exports.places(), f"seed {seed}")
    monkeypatch.undo()
    settle(topics, running)
    exports.run("--transactions", "atomic")
    assert exports.places() == {place_of(row) for row in topics.committed()}
    cuts = list(exports.complete_cuts())
    assert len(cuts) >= 3
    for snapshots in cuts:
        check_whole(topics, exports.places(snapshots), f"seed {seed} {snapshots}")


def test_reconcile_leaves_aborted_and_open_ones_apart(topics: TransactingTopics, exports: Exports) -> None:
    aborted, committed, left_open = topics.begin(1), topics.begin(2), topics.begin(3)
    for one in (aborted, committed, None):
        topics.send(one, A0)
    topics.end(aborted, is_commit=False)
    topics.end(committed, is_commit=True)
    topics.send(left_open, A0)
    topics.send(None, A0)
    exports.run("--quiet")
    arguments = ["reconcile", "a", "--to", str(exports.folder)]
    done = CliRunner().invoke(main, arguments, env=store_environment(topics.settings))
    assert done.exit_code == 0, done.output
    assert "Topic and table agree on 4 records" in done.output
    assert "the records of 1 aborted transactions are on neither side" in done.output
    assert "4 offsets wait for transactions that are open" in done.output
    fields = json.loads(
        CliRunner()
        .invoke(main, [*arguments, "--json", "--quiet"], env=store_environment(topics.settings))
        .stdout
    )
    (found,) = fields["topics"]
    assert found["partitions"][0]["undecided"] == [{"first_offset": 8, "last_offset": 11}]
    assert found["partitions"][0]["aborted_transactions"] == 1


def test_an_open_transaction_holds_back_its_own_parts_only(
    topics: TransactingTopics, exports: Exports
) -> None:
    hanging, first, second = topics.begin(1), topics.begin(2), topics.begin(3)
    topics.send(hanging, B0)
    for place in (A0, B0):
        topics.send(first, place)
    topics.send(second, A0)
    topics.send(second, A1)
    topics.end(first, is_commit=True)
    topics.end(second, is_commit=True)
    said = exports.run("--transactions", "atomic")
    assert exports.places() == record_places(second.records)
    assert "3 offsets of transactions that are not complete wait for a later one" in said
    topics.end(hanging, is_commit=False)
    exports.run("--transactions", "atomic")
    assert exports.places() == record_places([*first.records, *second.records])
    assert exports.run("--transactions", "atomic", "--json", "--quiet")


def test_a_quiet_topic_is_not_read_twice(topics: TransactingTopics, exports: Exports) -> None:
    one = topics.begin(1)
    topics.send(one, A0)
    topics.send(one, B0)
    topics.end(one, is_commit=True)
    assert "looked at" not in exports.run("--transactions", "atomic")
    assert exports.places() == record_places(one.records)


def test_killed_between_tables_the_next_cut_completes(
    topics: TransactingTopics, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = topics.begin(1)
    topics.send(one, A0)
    topics.send(one, B0)
    topics.end(one, is_commit=True)
    with monkeypatch.context() as patch:
        patch.setattr(TopicExport, "notify", killed)
        with pytest.raises(KilledError):
            exports.run("--transactions", "atomic")
    assert exports.places() == record_places(one.records[:2])
    assert list(exports.complete_cuts()) == []
    exports.run("--transactions", "atomic")
    assert exports.places() == record_places(one.records)
    assert len(list(exports.complete_cuts())) == 1


class KilledError(BaseException):
    """The process ends here."""


def killed(*_: object) -> None:
    raise KilledError


def test_one_topic_that_fails_fails_all(topics: TransactingTopics, exports: Exports) -> None:
    topics.send(None, A0)
    topics.send(None, B0)
    exports.run("--transactions", "atomic")
    topics.send(None, A0)
    topics.writers["b"].recreate()
    said = exports.run("--transactions", "atomic", status=1)
    assert "has an earlier topic of the name 'b'" in said
    assert len(exports.places()) == 4


def test_more_ranges_than_a_table_remembers_are_refused(
    topics: TransactingTopics, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_export, "MOST_RANGES", 2)
    hanging = topics.begin(1)
    topics.send(hanging, B0)
    for number in range(3):
        one = topics.begin(10 + number)
        topics.send(one, A0)
        topics.send(one, B0)
        topics.end(one, is_commit=True)
        topics.send(None, A0)
    said = exports.run("--transactions", "atomic", status=1)
    assert "would leave out 3 ranges of a-0, and at most 2 are legal" in said
    assert "transactions wait for b-0 from offset 0 on" in said
    topics.end(hanging, is_commit=True)
    exports.run("--transactions", "atomic")
    assert exports.places() == {place_of(row) for row in topics.committed()}


@pytest.mark.parametrize(
    "option",
    [("--backfill-from", "earliest"), ("--freshness", "consolidated")],
)
def test_options_that_no_cut_can_have_are_refused(exports: Exports, option: tuple[str, str]) -> None:
    said = exports.run("--transactions", "atomic", *option, status=2)
    assert "is not legal with --transactions atomic: " in said
