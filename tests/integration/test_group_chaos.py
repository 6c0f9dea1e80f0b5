"""Groups whose members come, go, are killed and are stopped, on a broker that is killed, keep their promises.

KAFSCALE_TEST_GROUP_SECONDS sets how long each kind of group is troubled (default 3), KAFSCALE_TEST_SEED
repeats a run's actions; KAFSCALE_TEST_PEER=kafka runs the same on Apache Kafka, which is not killed.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.compat.tools import java_missing
from tests.support import wire
from tests.support.group_beginning import MUST_BEGIN_COMMITTED, commit_beginning
from tests.support.group_chaos import Chaos, MemberProcess, Scenario
from tests.support.group_journal import Assigned, Committed, Event, Processed
from tests.support.group_member_work import CONSUMER_PROTOCOL
from tests.support.group_observer import Observer
from tests.support.group_peer import group_peer, peer_kind
from tests.support.group_witness import Evidence, check, periods
from tests.support.ledger import Ledger, Place
from tests.support.load import IdempotentLoad
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

SECONDS = float(os.environ.get("KAFSCALE_TEST_GROUP_SECONDS", "3"))
SEED = int(os.environ.get("KAFSCALE_TEST_SEED", random.SystemRandom().randrange(2**32)))

PARTITIONS = 6
PAUSE_S = 0.02  # after a record to each partition: some 250 records a second
SETTINGS = {
    "group_initial_rebalance_delay_ms": 100,
    "group_min_session_timeout_ms": 500,
    # The clients have no say in these in the consumer protocol.
    "group_consumer_min_session_timeout_ms": 500,
    "group_consumer_session_timeout_ms": 1500,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 300,
    "offsets_commit_timeout_ms": 1500,
}

PYTHON_CLIENTS = ("librdkafka", "kafka-python", "aiokafka")
ALL_CLIENTS = PYTHON_CLIENTS if java_missing() else (*PYTHON_CLIENTS, "java")


def ends(broker: Any, topic: str) -> dict[int, int]:
    """Partition -> log end offset."""
    with wire.connect(broker) as connection:
        return {
            partition: wire.list_offset(connection, topic, partition, wire.LATEST).offset
            for partition in range(PARTITIONS)
        }


def run_group(broker: Any, chaos: Chaos, scenario: Scenario, seconds: float) -> Evidence:
    """Produce, trouble the group, let it work off what is left, and let all leave."""
    places: list[Place] = [(scenario.topic, partition) for partition in range(PARTITIONS)]
    ledger = Ledger()
    connect = partial(wire.connect, broker)
    beginning: dict[str, list[Event]] = {}
    if not MUST_BEGIN_COMMITTED.isdisjoint(scenario.clients):
        beginning["beginning"] = commit_beginning(connect, scenario.group, scenario.topic, PARTITIONS)
    load = IdempotentLoad("load", broker, places, ledger, pause_s=PAUSE_S)
    observer = Observer(connect, scenario.group, scenario.topic, PARTITIONS)
    load.start()
    observer.start()
    try:
        chaos.start()
        chaos.run(seconds)
    finally:
        load.stop()
        load.join(120)
        chaos.calm()
    try:
        end = ends(broker, scenario.topic)

        def drained() -> bool:
            assert broker.exit_code is None, f"the broker ended by itself: exit code {broker.exit_code}"
            observer.check()
            return observer.last() == end

        wait_until(drained, f"all is committed up to {end}")
        chaos.stop()
        wait_until(drained, "the offsets stay when all have left")
    finally:
        observer.stop()
    ledger.check_producers()
    with wire.connect(broker) as connection:
        log = {partition: wire.read_all(connection, scenario.topic, partition) for partition in end}
    return Evidence(
        journals=beginning | chaos.journals(),
        log=log,
        acknowledged=ledger.acknowledged(),
        observations=observer.observations,
    )


def summary(evidence: Evidence) -> str:
    """The parts of the run."""
    events = [event for journal in evidence.journals.values() for event in journal]
    processed = [event for event in events if isinstance(event, Processed)]
    generations = {event.generation for event in events if isinstance(event, Assigned)}
    members = sum(any(isinstance(event, Assigned) for event in one) for one in evidence.journals.values())
    return (
        f"{members} members, {len(generations)} generations, {len(periods(evidence))} periods, "
        f"{len(evidence.acknowledged)} records, {len(processed)} processed, "
        f"{sum(isinstance(event, Committed) for event in events)} commits, "
        f"{len(evidence.observations)} observations"
    )


@pytest.mark.timeout(900 + 4 * SECONDS)
@pytest.mark.parametrize(
    ("clients", "assignor"),
    [
        pytest.param(ALL_CLIENTS, "range", id="mixed"),
        pytest.param(("librdkafka",), "range", id="librdkafka-range", marks=pytest.mark.nightly),
        pytest.param(("librdkafka",), "roundrobin", id="librdkafka-roundrobin", marks=pytest.mark.nightly),
        pytest.param(
            ("librdkafka",), "cooperative-sticky", id="librdkafka-cooperative", marks=pytest.mark.nightly
        ),
        pytest.param(
            (CONSUMER_PROTOCOL,), "uniform", id="consumer-protocol-uniform", marks=pytest.mark.nightly
        ),
        pytest.param((CONSUMER_PROTOCOL,), "range", id="consumer-protocol-range", marks=pytest.mark.nightly),
        pytest.param(("kafka-python",), "range", id="kafka-python", marks=pytest.mark.nightly),
        pytest.param(("aiokafka",), "range", id="aiokafka", marks=pytest.mark.nightly),
    ],
)
def test_a_group_keeps_its_promises(tmp_path: Path, clients: tuple[str, ...], assignor: str) -> None:
    print(f"KAFSCALE_TEST_SEED={SEED} KAFSCALE_TEST_GROUP_SECONDS={SECONDS}")
    generator = random.Random(f"{SEED} {clients} {assignor}")
    with group_peer(tmp_path / "broker", **SETTINGS) as broker:
        topic = unique_name()
        create_topic(broker, topic, PARTITIONS)
        scenario = Scenario(group=f"group-of-{topic}", topic=topic, clients=clients, assignor=assignor)
        chaos = Chaos(
            broker, scenario, tmp_path / "members", generator, kill_broker=peer_kind() == "kafscale"
        )
        try:
            evidence = run_group(broker, chaos, scenario, SECONDS)
        finally:
            chaos.close()
    print(f"{summary(evidence)}; {chaos.done}")
    check(evidence)


class StopsOne(Chaos):
    """Stops a member as soon as all are assigned something, for longer than its session lasts."""

    def run(self, seconds: float, goes_on: Callable[[], bool] = lambda: False) -> None:
        """Until it is back and has worked for that long, by its clock."""
        self._act("pause")
        ((_, _, member),) = self._paused
        wait_until(self._is_back, f"{member.name} goes on")
        back_s = time.monotonic()
        wait_until(lambda: self._works_at(member, back_s + seconds), f"{member.name} works")

    def _is_back(self) -> bool:
        self._resume_due()
        return not self._paused

    def _works_at(self, member: MemberProcess, time_s: float) -> bool:
        return any(isinstance(event, Processed) and event.time_s > time_s for event in member.journal.read())


def test_member_stopped_before_first_fetch_does_not_go_back(
    tmp_path: Path,
) -> None:
    """One had come to 161 and went on at 0: librdkafka's own doing, see group_beginning.py."""
    print(f"KAFSCALE_TEST_SEED={SEED}")
    with group_peer(tmp_path / "broker", **SETTINGS) as broker:
        topic = unique_name()
        create_topic(broker, topic, PARTITIONS)
        scenario = Scenario(group=f"group-of-{topic}", topic=topic, clients=("librdkafka",), assignor="range")
        chaos = StopsOne(broker, scenario, tmp_path / "members", random.Random(SEED), kill_broker=False)
        try:
            evidence = run_group(broker, chaos, scenario, 1.5)
        finally:
            chaos.close()
    print(summary(evidence))
    check(evidence)
