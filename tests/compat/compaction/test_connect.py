"""Kafka Connect in distributed mode: its three compacted topics, over compactions and restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import tools
from tests.compat.compaction.connect_worker import ConnectWorker
from tests.compat.conftest import Peer
from tests.support.compacted_topics import DIRTY_AT_ONCE, count_records
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until
from tests.support.wire import connect, read_all

CONNECTOR = "lines"
RESTARTS = 3


@pytest.fixture
def worker(compacting: Peer, tmp_path: Path) -> Iterator[ConnectWorker]:
    """A worker of a group of its own."""
    reason = tools.compaction_jars_missing()
    if reason:
        pytest.skip(reason)
    configs = {name: value for name, value in DIRTY_AT_ONCE.items() if name != "cleanup.policy"}
    made = ConnectWorker(tmp_path, compacting.bootstrap, unique_name("connect"), configs)
    try:
        made.start()
        yield made
        if made.exit_code is None:
            made.stop()
    finally:
        made.close()


@pytest.mark.nightly
def test_worker_finds_all_again_in_its_compacted_topics(
    compacting: Peer, worker: ConnectWorker, tmp_path: Path
) -> None:
    topic, source = unique_name("lines"), tmp_path / "lines.txt"
    create_topic(compacting, topic, 1)
    written: list[str] = []

    def append(count: int = 1) -> None:
        lines = [f"line {len(written) + number}" for number in range(count)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written.extend(lines)

    def arrived() -> list[bytes | None]:
        with connect(compacting) as wire:
            return [value for _, value in read_all(wire, topic, 0)]

    def config(generation: int) -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "name": CONNECTOR,
            "tasks.max": "1",
            "file": str(source),
            "topic": topic,
            "batch.size": str(100 + generation),
        }

    generation = 0

    def is_compacted() -> bool:
        # Each turn writes to all three topics.
        nonlocal generation
        generation += 1
        worker.configure(CONNECTOR, config(generation))
        worker.wait_until_running(CONNECTOR)
        append()
        wait_until(lambda: len(arrived()) >= len(written), "the lines have come")
        counts = [count_records(compacting, name) for name in worker.topics.values()]
        return generation % 4 == 0 and all(records < end_offset * 0.7 for end_offset, records in counts)

    for restart in range(RESTARTS):
        append(10)
        wait_until(is_compacted, "all three topics are compacted")
        print(restart, generation, {name: count_records(compacting, name) for name in worker.topics.values()})
        worker.stop()
        append(5)
        worker.start()
        # Without being told: all of this comes from the topics.
        assert worker.config(CONNECTOR) == config(generation)
        worker.wait_until_running(CONNECTOR)
        wait_until(lambda: len(arrived()) >= len(written), "the lines of the pause have come")
        # Each once: the offset in the file was kept.
        assert arrived() == [f'"{line}"'.encode() for line in written]
