"""An export beside producers that commit and abort through a broker: no snapshot has a transaction by half."""

import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kafscale
from kafscale.settings.broker import Settings
from tests.lake.support.exports_by_config import Exports
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.librdkafka import producer
from tests.support.nightly import by_day
from tests.support.waiting import PATIENCE_SEC, wait_until

PARTITIONS = 2
TOPICS = ("a", "b")


class Writer:
    """Transactions over all partitions, each record with the number of its own, until it is stopped."""

    def __init__(self, broker: KafscaleBroker, number: int) -> None:
        self.committed: dict[bytes, int] = {}
        self.aborted: set[bytes] = set()
        self._client = producer(broker, transactional_id=f"writer-{number}", linger_ms=1)
        self._number = number
        self._stopping = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer {number}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            self._write(self._client)
        except BaseException as problem:  # noqa: BLE001 - raised again by `stop`
            self._problem = problem

    def _write(self, client: Producer) -> None:
        dice = random.Random(self._number)
        client.init_transactions(PATIENCE_SEC)
        transaction = 0
        while not self._stopping.is_set():
            transaction += 1
            name = b"%d-%d" % (self._number, transaction)
            count = dice.randint(1, 6)
            client.begin_transaction()
            for _ in range(count):
                client.produce(dice.choice(TOPICS), name, partition=dice.randrange(PARTITIONS))
            if dice.random() < 0.7:
                client.commit_transaction(PATIENCE_SEC)
                self.committed[name] = count
            else:
                client.flush(PATIENCE_SEC)
                client.abort_transaction(PATIENCE_SEC)
                self.aborted.add(name)


def counts(rows: list[dict[str, object]]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for row in rows:
        value = row["value"]
        assert isinstance(value, bytes)
        found[value] = found.get(value, 0) + 1
    return found


def wait_for_more(writers: list[Writer]) -> None:
    wanted = sum(len(one.committed) for one in writers) + 10
    wait_until(lambda: sum(len(one.committed) for one in writers) >= wanted, "more are committed")


def check(found: dict[bytes, int], committed: dict[bytes, int], aborted: set[bytes]) -> None:
    for name, count in found.items():
        assert name not in aborted
        assert committed.get(name) == count, f"{count} of {committed.get(name)} records of {name!r}"


@pytest.mark.nightly
def test_exports_beside_transactions(tmp_path: Path, logging_as_before: None) -> None:
    with running_broker(tmp_path, flush_interval_ms=20, seal_interval_ms=200, seal_max_age_ms=1000) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"kafscale.iceberg.enable": "true"}
        for created in admin.create_topics(
            [NewTopic(one, PARTITIONS, config=config) for one in TOPICS]
        ).values():
            created.result(PATIENCE_SEC)
        exports = Exports(Settings(data_dir=broker.data_folder), TOPICS, tmp_path / "lake")
        writers = [Writer(broker, number) for number in range(3)]
        for one in writers:
            one.start()
        try:
            for _ in range(by_day(3, by_night=20)):
                wait_for_more(writers)
                exports.run("--transactions", "atomic")
        finally:
            for one in writers:
                one.stop()
        committed = {name: count for one in writers for name, count in one.committed.items()}
        aborted = {name for one in writers for name in one.aborted}
        cuts = list(exports.complete_cuts())
        assert len(cuts) >= 3
        for cut in cuts:
            check(counts(exports.rows(cut)), committed, aborted)
        exports.run("--transactions", "atomic")
        assert counts(exports.rows()) == committed
        read = [
            row for topic in TOPICS for row in kafscale.read(broker.data_folder, topic).read_all().to_pylist()
        ]
        assert counts(read) == committed
