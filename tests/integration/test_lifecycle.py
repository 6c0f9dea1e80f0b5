"""Start and stop: one broker per folder, a clear word when it cannot start, nothing lost when told to stop."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.producer import ProduceResponse

from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.topics import create_topic, describe_topic
from tests.support.waiting import PATIENCE_SEC, wait_until

pytestmark = pytest.mark.usefixtures("new_processes")

PARTITIONS = 1000
START_SECONDS = 1.0
# Generous: what is asserted is that start-up does not grow with the partitions, on a machine that is busy.
START_ALLOWANCE_SECONDS = 8.0


def failed_start(broker: KafscaleBroker, request: pytest.FixtureRequest) -> tuple[int, str]:
    """Exit code and log of a broker that must not come up."""
    request.addfinalizer(broker.close)
    broker.launch_only()
    return broker.wait_exit(15), broker.log_text()


def test_a_second_broker_on_the_same_folder_is_refused(
    start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = start_broker()
    create_topic(first, "t")
    second = KafscaleBroker(tmp_path / "second", "second", data_dir=first.data_folder)
    code, log = failed_start(second, request)
    assert code not in (0, -signal.SIGKILL)
    assert str(first.data_folder) in log, log
    assert "Traceback" not in log
    with wire.connect(first) as connection:  # and the first one never noticed
        assert wire.produce(connection, "t", 0, wire.batch([b"x"])).base_offset == 0
    first.stop()
    second.start()  # the folder is free again
    with wire.connect(second) as connection:
        assert wire.read_all(connection, "t", 0) == [(0, b"x")]
    second.stop()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("flush_interval_ms", "soon"),
        pytest.param("segment_bytes", "-1", marks=pytest.mark.nightly),
        pytest.param("compression_codec", "rar", marks=pytest.mark.nightly),
        ("broker_addr", "nonsense"),
        pytest.param("auto_create_topics", "perhaps", marks=pytest.mark.nightly),
    ],
)
def test_a_bad_setting_stops_the_start_with_one_line(
    tmp_path: Path, request: pytest.FixtureRequest, setting: str, value: str
) -> None:
    code, log = failed_start(KafscaleBroker(tmp_path, **{setting: value}), request)
    assert code not in (0, -signal.SIGKILL)
    lines = [line for line in log.splitlines() if not line.startswith("---")]
    assert len(lines) == 1, log
    assert f"KAFSCALE_{setting.upper()}" in lines[0]
    assert value in lines[0]


def test_taken_port_stops_the_start_with_a_clear_message(
    start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = start_broker()
    second = KafscaleBroker(tmp_path / "second", "second", broker_addr=first.bootstrap)
    code, log = failed_start(second, request)
    assert code not in (0, -signal.SIGKILL)
    assert first.bootstrap in log or str(first.port) in log
    assert "Traceback" not in log


def test_unusable_folder_stops_start_with_clear_message(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    code, log = failed_start(KafscaleBroker(tmp_path / "broker", data_dir=in_the_way), request)
    assert code not in (0, -signal.SIGKILL)
    assert str(in_the_way) in log
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_stop_flushes_what_is_buffered_and_answers_what_waits(
    start_broker: StartBroker, number: signal.Signals
) -> None:
    broker = start_broker(flush_interval_ms=60_000, flushes_per_sec=0)  # nothing is flushed by time
    create_topic(broker, "t", 3)
    with wire.connect(broker) as producing, wire.connect(broker) as fetching:
        for partition in range(3):
            records = wire.batch([b"%d" % partition])
            producing.send(
                wire.produce_request("t", {partition: records}, timeout_ms=60_000), wire.PRODUCE_VERSION
            )
        fetching.send(wire.fetch_request("t", {0: 0}, max_wait_ms=60_000), wire.FETCH_VERSION)
        _wait_until_buffered(broker, 3)
        began = time.monotonic()
        broker.send_signal(number)
        answers = [wire.receive_produce(producing)[1] for _ in range(3)]
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, 0)] * 3
        assert broker.wait_exit(15) == 0
        took = time.monotonic() - began
    print(f"stopped in {took:.2f} s")
    assert took < 5
    broker.start()
    with wire.connect(broker) as connection:
        for partition in range(3):
            assert wire.read_all(connection, "t", partition) == [(0, b"%d" % partition)]


def _wait_until_buffered(broker: KafscaleBroker, records: int) -> None:
    """The broker's own metric says that it holds bytes that are not flushed."""

    def buffered() -> bool:
        for line in broker.http_get("/metrics")[1].splitlines():
            if line.startswith("kafscale_produce_buffer_used_bytes "):
                return float(line.split()[1]) >= 61 * records
        raise AssertionError("no metric kafscale_produce_buffer_used_bytes")

    wait_until(buffered, f"{records} records are buffered")


def test_a_stop_under_load_keeps_every_answer_it_gave(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=20)
    create_topic(broker, "t", 4)
    acknowledged: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(4)}

    def produce(partition: int) -> None:
        number = 0
        try:
            with wire.connect(broker) as connection:
                while True:
                    values = [b"%d.%d" % (partition, number + n) for n in range(4)]
                    for value in values:
                        request = wire.produce_request("t", {partition: wire.batch([value])})
                        connection.send(request, wire.PRODUCE_VERSION)
                    number += len(values)
                    for value in values:
                        _, answer = wire.receive_produce(connection)
                        if answer.error_code == 0:
                            acknowledged[partition].append((answer.base_offset, value))
        except (OSError, wire.ConnectionEndedError):
            return

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(one) > 20 for one in acknowledged.values()), "load")
    took = broker.stop()
    for thread in threads:
        thread.join(PATIENCE_SEC)
    print(f"stopped in {took:.2f} s with {sum(map(len, acknowledged.values()))} acknowledged")
    assert took < 5
    broker.start()
    with wire.connect(broker) as connection:
        for partition, promised in acknowledged.items():
            stored = dict(wire.read_all(connection, "t", partition))
            assert [(offset, stored.get(offset)) for offset, _ in promised] == promised


@pytest.mark.nightly
def test_a_thousand_partitions_do_not_delay_the_start(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=5)
    empty_seconds = broker.ready_seconds
    for n in range(10):
        create_topic(broker, f"topic-{n}", PARTITIONS // 10)
    with wire.connect(broker) as connection:
        for n in range(10):
            requests = {index: wire.batch([b"x"]) for index in range(PARTITIONS // 10)}
            reply: Any = connection.call(
                wire.produce_request(f"topic-{n}", requests), ProduceResponse, wire.PRODUCE_VERSION
            )
            assert {one.error_code for one in reply.responses[0].partition_responses} == {0}
    for stop in (broker.stop, broker.kill9):
        stop()
        broker.start()
        print(f"{PARTITIONS} partitions: ready in {broker.ready_seconds:.2f} s (goal {START_SECONDS} s)")
        assert broker.ready_seconds < START_ALLOWANCE_SECONDS
        with wire.connect(broker) as connection:
            assert len(describe_topic(connection, "topic-9").partitions) == PARTITIONS // 10
            assert wire.list_offset(connection, "topic-9", 99, wire.LATEST).offset == 1
            assert wire.produce(connection, "topic-0", 0, wire.batch([b"x"])).error_code == 0
    print(f"no partitions: ready in {empty_seconds:.2f} s")


def test_health_readiness_and_metrics_are_served(start_broker: StartBroker) -> None:
    broker = start_broker(flush_interval_ms=5)
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        wire.produce(connection, "t", 0, wire.batch([b"x"] * 7))
        wire.read_all(connection, "t", 0)
    assert broker.http_get("/healthz")[0] == 200
    assert broker.http_get("/readyz")[0] == 200
    assert broker.http_get("/nothing-here")[0] == 404
    status, metrics = broker.http_get("/metrics")
    assert status == 200
    rows = [line for line in metrics.splitlines() if not line.startswith("#")]
    assert any('topic="t"' in row and float(row.split()[-1]) == 7 for row in rows), metrics
