"""A rolling restart while all clients work, with their default retries: nobody notices more than a short wait."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_consumers import CONSUMERS
from tests.support.client_party import ClientParty
from tests.support.java import JavaServer
from tests.support.java_groups import JavaGroups, groups_on
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.raw_sessions import raw_sessions
from tests.support.waiting import PATIENCE_SEC
from tests.support.zoned_cluster import ZonedCluster, cluster_missing, zoned_cluster

FIRST, OTHERS = 1, (2, 3)
# Usually 0.3 s, on a very busy machine some. What is not handed over stays without a leader for the whole lease.
SILENCE_S = 25.0
LEASE_TTL_SEC = 60

pytestmark = [IGNORED_WHILE_THEY_RUN, pytest.mark.nightly]
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def cluster(peer_kind: str, tmp_path: Path) -> Iterator[ZonedCluster]:
    """Three brokers whose leases run out only long after a test has failed."""
    reason = "there is one Apache Kafka only" if peer_kind == "kafka" else cluster_missing()
    if reason is not None:
        pytest.skip(reason)
    with zoned_cluster(tmp_path, lease_ttl_sec=LEASE_TTL_SEC) as made:
        yield made


@pytest.fixture
def java_groups(group_jvm: JavaServer, cluster: ZonedCluster) -> Iterator[JavaGroups]:
    with groups_on(group_jvm, cluster.bootstrap) as groups:
        yield groups


def test_clients_notice_no_error(cluster: ZonedCluster, java_groups: JavaGroups, tmp_path: Path) -> None:
    """No producer gives up a record, none is stored twice; no consumer is reset, no group rebalances.

    Every partition is handed over: nothing waits for a lease to run out.

    Raw clients find at a broker's successors what they began with it.
    """
    party = ClientParty(cluster)
    with party.at_work(java_groups, tmp_path, {}, {}), raw_sessions(cluster, FIRST) as sessions:
        for broker_id in (FIRST, *OTHERS):
            began = time.monotonic()
            stopped_s = cluster.cluster.stop(broker_id)
            party.all_go_on(f"broker {broker_id} is stopped", PATIENCE_SEC)
            report(party, f"stop of broker {broker_id} ({stopped_s:.2f} s)", began)
            sessions.go_on()
            began = time.monotonic()
            cluster.cluster.start(broker_id)
            cluster.wait_spread(*party.topics.values(), *sessions.topics)
            party.all_go_on(f"broker {broker_id} is back", PATIENCE_SEC)
            report(party, f"start of broker {broker_id}", began)
            sessions.go_on()
        sessions.end()
        stored = party.finish()
        party.assert_stored_once(stored, "java", "kafka-python", in_order=True)
        # not idempotent by default, so that what waited for a new leader may overtake what was refused
        party.assert_stored_once(stored, "librdkafka", "aiokafka", in_order=False)
        party.assert_read_once_in_order(stored, *CONSUMERS)
        for client, consumer in party.consumers.items():
            assert consumer.taken_away() == [], f"{client} had to give partitions"


def report(party: ClientParty, what: str, began: float) -> None:
    """Print for each producer how long each partition was without an acknowledgement, and check it."""
    silences = party.silences(began, time.monotonic())
    told = {client: [f"{one:.2f}" for one in parts] for client, parts in silences.items()}
    print(f"{what}: seconds without an acknowledgement {told}")
    assert max(max(parts) for parts in silences.values()) < SILENCE_S
