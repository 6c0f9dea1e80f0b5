"""Groups of the consumer protocol on a cluster in trouble: every record is processed, no partition has two owners.

KAFSCALE_TEST_GROUP_SECONDS sets how long the trouble goes on (default 3), KAFSCALE_TEST_SEED repeats a run's
choices. `make group-chaos` takes 120 s for each.
"""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.compat.tools import java_missing
from tests.integration.test_cluster_chaos import ALL, MISSING, PAUSES, chaos_run
from tests.integration.test_group_chaos import PARTITIONS, SECONDS, SEED, SETTINGS, summary
from tests.support.cluster_chaos import TOPIC
from tests.support.cluster_member_chaos import trouble_both
from tests.support.group_beginning import commit_beginning
from tests.support.group_chaos import JAVA_CONSUMER_PROTOCOL, Chaos, Scenario
from tests.support.group_member_work import CONSUMER_PROTOCOL
from tests.support.group_observer import Observer
from tests.support.group_witness import Evidence, check
from tests.support.nemesis import Trouble, etcd_away, kill, object_store_troubles, rolling_restart
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(1200 + 8 * SECONDS),
]

GROUP = "group"
CLIENTS = (CONSUMER_PROTOCOL,) if java_missing() else (CONSUMER_PROTOCOL, JAVA_CONSUMER_PROTOCOL)


@pytest.mark.parametrize(
    ("troubles", "assignor"),
    [
        pytest.param((kill, *PAUSES, rolling_restart), "uniform", id="brokers"),
        pytest.param((etcd_away, object_store_troubles, kill), "uniform", id="stores"),
        pytest.param(ALL, "range", id="everything"),
    ],
)
def test_consumer_group_keeps_its_promises(
    tmp_path: Path, troubles: Sequence[Trouble], assignor: str
) -> None:
    name = f"consumer group {[one.__name__ for one in troubles]}"
    with chaos_run(tmp_path, name, settings=SETTINGS) as (run, _):
        connect = partial(run.cluster.connected_to_coordinator, GROUP)
        run.start_producer()
        beginning = commit_beginning(connect, GROUP, TOPIC, PARTITIONS)
        observer = Observer(connect, GROUP, TOPIC, PARTITIONS)
        scenario = Scenario(group=GROUP, topic=TOPIC, clients=CLIENTS, assignor=assignor, members=(3, 5))
        chaos = Chaos(run.cluster, scenario, tmp_path / "members", random.Random(SEED))
        observer.start()
        try:
            chaos.start()
            done = trouble_both(run, troubles, chaos, SECONDS)
            run.finish().check()
            log = {partition: run.final[TOPIC, partition] for partition in range(PARTITIONS)}
            end = {partition: records[-1][0] + 1 for partition, records in log.items()}

            def drained() -> bool:
                observer.check()
                return observer.last() == end

            wait_until(drained, f"all is committed up to {end}")
            chaos.stop()
            wait_until(drained, "the offsets stay when all have left")
        finally:
            observer.stop()
            chaos.close()
        evidence = Evidence(
            journals={"beginning": beginning, **chaos.journals()},
            log=log,
            acknowledged=run.history.acknowledged(),
            observations=observer.observations,
        )
    print(f"troubles: {done}; {summary(evidence)}; {chaos.done}")
    check(evidence)
