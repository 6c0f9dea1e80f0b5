"""The first lines of a broker's log: where clients connect, where metrics are, where data lies; or what is taken."""

import socket
from pathlib import Path

import pytest

from tests.support.broker import KafscaleBroker

pytestmark = pytest.mark.usefixtures("new_processes")


def test_the_first_lines_say_where_everything_is(tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path)
    try:
        broker.start()
        first = broker.log_text().splitlines()[1:4]  # after the command
        broker.stop()
    finally:
        broker.close()
    assert f"url=http://{broker.host}:{broker.metrics_port}" in first[0]
    assert f"records={broker.data_folder}/objects metadata={broker.data_folder}/metadata.db" in first[1]
    assert f"bootstrap_servers={broker.bootstrap} listening_on={broker.bootstrap}" in first[2]


def test_a_kafka_port_in_use_names_address_and_setting(tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path)
    try:
        with socket.create_server((broker.host, broker.port)):
            broker.launch_only()
            assert broker.wait_exit(60) == 1
        assert broker.log_text().splitlines()[-1] == (
            f"kafscale: cannot listen on {broker.bootstrap} for Kafka clients: Address already in "
            "use; stop what uses it or set another KAFSCALE_BROKER_ADDR"
        )
    finally:
        broker.close()
