"""Kafka Streams: a table is restored from its changelog, of which nine tenths and more are gone."""

import random
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compat import tools
from tests.compat.compaction.java_programs import streams_table
from tests.compat.conftest import Peer
from tests.support.compacted_topics import DIRTY_AT_ONCE, count_records
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

KEYS = 500
FIRST_UPDATES = 20_000
CHANGELOG_CONFIGS = {name: value for name, value in DIRTY_AT_ONCE.items() if name != "cleanup.policy"}


class Input:
    """The application's input: `newest` is what its table must be."""

    def __init__(self, broker: Peer, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self._topic = topic
        self._chance = random.Random(topic)
        self.newest: dict[str, str] = {}

    def update(self, count: int) -> None:
        """So many updates, a tenth of which delete their key."""
        for number in range(count):
            key = f"key-{self._chance.randrange(KEYS)}"
            # The first value of a key is no deletion, as the reducer does not see it.
            value = "gone" if key in self.newest and self._chance.random() < 0.1 else f"{number} of {key}"
            self._producer.produce(self._topic, value, key)
            if value == "gone":
                self.newest.pop(key)
            else:
                self.newest[key] = value
            if not number % 1000:
                self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SEC) == 0


@pytest.mark.nightly
def test_table_is_restored_from_compacted_changelog(compacting: Peer, tmp_path: Path) -> None:
    reason = tools.compaction_jars_missing()
    if reason:
        pytest.skip(reason)
    topic, application = unique_name("input"), unique_name("application")
    create_topic(compacting, topic, 1)
    changelog = f"{application}-table-changelog"
    fed = Input(compacting, topic)
    fed.update(FIRST_UPDATES)
    arguments = (compacting.bootstrap, application, topic)
    with streams_table(*arguments, tmp_path / "first", CHANGELOG_CONFIGS) as first:
        first.wait_until_running()
        wait_until(lambda: first.table() == fed.newest, "the table is up to date")

        def nine_tenths_are_gone() -> bool:
            # Updates go on, so that both brokers have newer segments than those they compact.
            fed.update(20)
            end_offset, stored = count_records(compacting, changelog)
            return end_offset >= FIRST_UPDATES and stored < end_offset / 10

        wait_until(nine_tenths_are_gone, "nine tenths of the changelog are gone")
        wait_until(lambda: first.table() == fed.newest, "the table is up to date")
    end_offset, stored = count_records(compacting, changelog)
    # Another state folder: all of the table comes from the changelog.
    with streams_table(*arguments, tmp_path / "second", CHANGELOG_CONFIGS) as second:
        restored = second.wait_until_running()
        table = second.table()
    print(f"changelog: {end_offset} offsets, {stored} records, {restored} restored, table of {len(table)}")
    assert table == fed.newest
    assert len(table) <= restored < end_offset / 10
