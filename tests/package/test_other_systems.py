"""Without what macOS and Windows lack a broker starts, keeps what it acknowledged, and stops."""

import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import InvalidTopicError

from tests.support.broker import KafscaleBroker
from tests.support.nightly import nightly_but
from tests.support.process import clean_environment
from tests.support.sealing import SEALED_SOON, wait_until_sealed
from tests.support.waiting import PATIENCE_SEC

RECORDS = [b"line ends\r\n\n\x1a %d" % number for number in range(50)] + [bytes(range(256)) * 2000]
"""The last one is large enough for direct I/O, which Linux alone has."""


class OtherSystemsBroker(KafscaleBroker):
    """`kafscale serve` in a process that pretends to run on another system."""

    def __init__(self, folder: Path, system: str) -> None:
        super().__init__(folder, system, **SEALED_SOON)
        self.system = system

    def launch_only(self) -> None:
        command = [sys.executable, "-m", "tests.package.other_system", self.system, "serve"]
        self.launch(command, self.environment() | {"PYTHONPATH": str(Path(__file__).parents[2])})


@pytest.mark.parametrize("system", nightly_but(["macos", "windows"], "windows"))
def test_broker_keeps_what_it_acknowledged(system: str, tmp_path: Path) -> None:
    broker = OtherSystemsBroker(tmp_path, system)
    try:
        broker.start()
        refuse_names(broker)
        produce(broker)
        assert consume(broker) == RECORDS
        wait_until_sealed(broker)
        assert list(broker.data_folder.rglob("*.kfs"))
        assert_second_owner_is_refused(broker)
        broker.stop()
        assert [path for path in (broker.data_folder / "objects" / ".tmp").iterdir() if path.is_dir()] == []
        broker.start()
        assert consume(broker) == RECORDS
        broker.stop()
        warned = "this system cannot sync folders" in broker.log_path.read_text()
        assert warned == (system == "windows")
    finally:
        broker.close()


def produce(broker: KafscaleBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    try:
        for sent in [producer.send("lines", value) for value in RECORDS]:
            assert sent.get(PATIENCE_SEC).partition == 0
    finally:
        producer.close()


def refuse_names(broker: OtherSystemsBroker) -> None:
    """Names whose folders the system would take for others', or gives none."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics([NewTopic("Lines", 1, 1)])
        for name in ("lines", "LINES", *(("nul", "con.x", "a.") if broker.system == "windows" else ())):
            with pytest.raises(InvalidTopicError):
                admin.create_topics([NewTopic(name, 1, 1)])
        admin.delete_topics(["Lines"])
        admin.create_topics([NewTopic("lines", 1, 1)])
    finally:
        admin.close()


def consume(broker: KafscaleBroker) -> list[bytes]:
    partition = TopicPartition("lines", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=PATIENCE_SEC * 1000)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        return [next(consumer).value for _ in RECORDS]
    finally:
        consumer.close()


def assert_second_owner_is_refused(broker: OtherSystemsBroker) -> None:
    command = [sys.executable, "-m", "tests.package.other_system", broker.system, "serve"]
    environment = broker.environment() | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "KAFSCALE_BROKER_ADDR": "127.0.0.1:0",
        "KAFSCALE_METRICS_ADDR": "127.0.0.1:0",
    }
    second = subprocess.run(
        command,
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert second.returncode == 1
    assert "is in use by another process" in second.stderr
