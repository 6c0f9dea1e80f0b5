"""Commits of many megabytes, again and again, and of groups without end: the metadata store stays small."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.group_apis import commit, committed
from tests.support.hostile_groups import committed_codes, offset_commit
from tests.support.metrics_page import scrape
from tests.support.topics import create_topic
from tests.support.watcher import watching

INVALID_COMMIT_OFFSET_SIZE = 28
OFFSET_METADATA_TOO_LARGE = 12
PARTITIONS = 2500
TEXT = "x" * 4096
MIB = 1 << 20
TOPIC = "many"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0, groups_stored_max_bytes="16MiB") as broker:
        create_topic(broker, TOPIC, PARTITIONS)
        yield broker


def stored_bytes(broker: KafscaleBroker) -> int:
    """The metadata store's size on disk."""
    folder = broker.data_folder / "metadata"
    files = folder.rglob("*") if folder.is_dir() else broker.data_folder.glob("metadata*")
    return sum(file.stat().st_size for file in files if file.is_file())


def test_commits_too_large_for_the_store_are_refused_whole(broker: KafscaleBroker) -> None:
    request = offset_commit("g", TOPIC, range(PARTITIONS), 1, TEXT)
    assert len(request) > 9 * MIB
    before = stored_bytes(broker)
    assert before > 0
    with watching(broker) as watcher, wire.connect(broker, timeout_s=120) as connection:
        for _ in range(20):
            connection.send_bytes(request)
            assert set(committed_codes(connection.receive_frame())) == {INVALID_COMMIT_OFFSET_SIZE}
        watcher.wait_for_rounds()
        assert committed(connection, "g", [(TOPIC, 0)])[TOPIC, 0].offset == -1
        assert commit(connection, "g", {(TOPIC, 0): 5}) == {(TOPIC, 0): 0}
    assert stored_bytes(broker) - before < 4 * MIB


def test_groups_that_fill_the_store_are_refused_and_others_go_on(broker: KafscaleBroker) -> None:
    with watching(broker) as watcher, wire.connect(broker, timeout_s=120) as connection:
        assert commit(connection, "old", {(TOPIC, 0): 1}) == {(TOPIC, 0): 0}
        codes: set[int] = set()
        for number in range(40):
            connection.send_bytes(offset_commit(f"filler-{number}", TOPIC, range(200), 1, TEXT))
            codes |= set(committed_codes(connection.receive_frame()))
        assert codes == {0, INVALID_COMMIT_OFFSET_SIZE}
        watcher.wait_for_rounds()
        assert commit(connection, "old", {(TOPIC, 0): 2}) == {(TOPIC, 0): 0}
        assert commit(connection, "filler-0", {(TOPIC, 0): 2}) == {(TOPIC, 0): 0}
    page = scrape(broker)
    used = page.value("kafscale_groups_stored_bytes", kind="offsets")
    assert 10 * MIB < used <= 0.75 * page.value("kafscale_groups_stored_limit_bytes") == 12 * MIB


def test_a_partition_named_again_and_again_is_stored_once(broker: KafscaleBroker) -> None:
    with wire.connect(broker, timeout_s=120) as connection:
        connection.send_bytes(offset_commit("g", TOPIC, [7] * 20_000, 1, "text"))
        assert committed_codes(connection.receive_frame()) == [0] * 20_000
        connection.send_bytes(offset_commit("g", TOPIC, [8, 9], 1, TEXT + "x"))
        assert committed_codes(connection.receive_frame()) == [OFFSET_METADATA_TOO_LARGE] * 2
    assert scrape(broker).value("kafscale_groups_stored_bytes", kind="offsets") < 1000
