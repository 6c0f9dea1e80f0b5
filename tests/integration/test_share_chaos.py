"""Share groups whose members and brokers are in trouble: every record ends as a member says, none is lost.

KAFSCALE_TEST_GROUP_SECONDS sets how long the trouble goes on (default 3), KAFSCALE_TEST_SEED repeats a run's
choices. `make group-chaos` takes 120 s for each.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.compat.tools import kafka_share_missing
from tests.integration.test_cluster_chaos import ALL, MISSING, PAUSES, chaos_run
from tests.integration.test_group_chaos import PARTITIONS, SECONDS, SEED, ends
from tests.support import wire
from tests.support.broker import running_broker
from tests.support.cluster_chaos import TOPIC
from tests.support.cluster_member_chaos import trouble_both
from tests.support.ledger import Ledger, Place
from tests.support.load import IdempotentLoad
from tests.support.nemesis import Trouble, etcd_away, kill, object_store_troubles, rolling_restart
from tests.support.nightly import by_day
from tests.support.share_chaos import LONGEST_PAUSE_S, PAUSES_S, SHARE_SETTINGS, ShareChaos, ShareScenario
from tests.support.share_checker import ShareEvidence, examine
from tests.support.topics import create_topic

pytestmark = pytest.mark.timeout(1200 + 8 * SECONDS)

PAUSE_S = by_day(1.5, by_night=LONGEST_PAUSE_S)
CLUSTER_SETTINGS = {
    **SHARE_SETTINGS,
    "seal_interval_ms": 1000,  # the lag is seen from another broker than the leader
}
CLIENTS = ("librdkafka",) if kafka_share_missing() else ("librdkafka", "java")


def judge(evidence: ShareEvidence, chaos: ShareChaos) -> None:
    """Print what happened; all must be well."""
    report = examine(evidence)
    print(f"{len(evidence.deliveries)} deliveries to {len(chaos.all_members)} members: {report.ends}")
    print(f"{chaos.done}; errors of acknowledgements: {chaos.errors()}")
    report.check()
    assert sum(report.ends.values()) == sum(map(len, evidence.log.values()))
    assert not report.ends.get("told, not answered", 0) > len(evidence.deliveries) // 4


def test_one_broker_is_killed(tmp_path: Path) -> None:
    print(f"KAFSCALE_TEST_SEED={SEED} KAFSCALE_TEST_GROUP_SECONDS={SECONDS}")
    settings: dict[str, Any] = {"flush_interval_ms": 5, **SHARE_SETTINGS}
    with running_broker(tmp_path / "broker", **settings) as broker:

        def kill_broker() -> None:
            broker.kill9()
            broker.start()

        topic = TOPIC
        create_topic(broker, topic, PARTITIONS)
        scenario = ShareScenario(
            group="share", topic=topic, clients=by_day(("librdkafka",), by_night=CLIENTS)
        )
        troubles = {"kill broker": kill_broker}
        generator = random.Random(SEED)
        chaos = ShareChaos(
            broker, scenario, tmp_path / "members", generator, troubles, longest_pause_s=PAUSE_S
        )
        ledger = Ledger()
        places: list[Place] = [(topic, partition) for partition in range(PARTITIONS)]
        loads = [
            IdempotentLoad(name, broker, places, ledger, pause_s=pause_s)
            for name, pause_s in PAUSES_S.items()
        ]
        try:
            chaos.configure()
            for load in loads:
                load.start()
            try:
                chaos.start()
                chaos.run(SECONDS)
            finally:
                for load in loads:
                    load.stop()
                for load in loads:
                    load.join(120)
                chaos.calm()
            ledger.check_producers()
            chaos.wait_finished(ends(broker, topic))
            chaos.stop()
            with wire.connect(broker) as connection:
                log = {partition: wire.read_all(connection, topic, partition) for _, partition in places}
            judge(chaos.evidence(log), chaos)
        finally:
            chaos.close()
    ledger.check({(topic, partition): records for partition, records in log.items()})


@pytest.mark.nightly
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize(
    "troubles",
    [
        pytest.param((kill, *PAUSES, rolling_restart), id="brokers"),
        pytest.param((etcd_away, object_store_troubles, kill), id="stores"),
        pytest.param(ALL, id="everything"),
    ],
)
def test_cluster_in_trouble(tmp_path: Path, troubles: Sequence[Trouble]) -> None:
    name = f"share {[one.__name__ for one in troubles]}"
    with chaos_run(tmp_path, name, settings=CLUSTER_SETTINGS) as (run, _):
        run.start_producer(PAUSES_S)
        scenario = ShareScenario(group="share", topic=TOPIC, clients=CLIENTS, members=(3, 5))
        chaos = ShareChaos(run.cluster, scenario, tmp_path / "members", random.Random(SEED))
        try:
            chaos.configure()
            chaos.start()
            done = trouble_both(run, troubles, chaos, SECONDS)
            run.finish().check()
            log = {partition: run.final[TOPIC, partition] for partition in range(PARTITIONS)}
            chaos.wait_finished({partition: records[-1][0] + 1 for partition, records in log.items()})
            chaos.stop()
            print(f"troubles: {done}")
            judge(chaos.evidence(log), chaos)
        finally:
            chaos.close()
