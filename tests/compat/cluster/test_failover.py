"""A leader and coordinator dies, another sleeps past its lease, while idempotent producers of all kinds work.

Every record is stored exactly once and in order, every consumer goes on where it was, and no group rebalances.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_consumers import CONSUMERS
from tests.support.client_party import PARTITIONS, PRODUCERS, ClientParty
from tests.support.group_work import committed_offsets, partitions_of
from tests.support.java import JavaServer
from tests.support.java_groups import JavaGroups, groups_on
from tests.support.ledger import Place
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.raw_sessions import StaleLeader, raw_sessions
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.zoned_cluster import ZonedCluster

DIES, SLEEPS = 1, 2
# After kill -9: the lease, then the others' claims, then what clients wait with before they try again.
GOES_ON_S = PATIENCE_SEC
IDEMPOTENT = {"librdkafka": {"enable_idempotence": True}, "aiokafka": {"enable_idempotence": True}}

pytestmark = [IGNORED_WHILE_THEY_RUN, pytest.mark.nightly]
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def java_groups(group_jvm: JavaServer, cluster: ZonedCluster) -> Iterator[JavaGroups]:
    with groups_on(group_jvm, cluster.bootstrap) as groups:
        yield groups


def test_a_broker_that_is_killed_and_one_that_sleeps(
    cluster: ZonedCluster, java_groups: JavaGroups, tmp_path: Path
) -> None:
    party = ClientParty(cluster)
    stale = StaleLeader(cluster, SLEEPS)
    with (
        party.at_work(java_groups, tmp_path, IDEMPOTENT, {}),
        raw_sessions(cluster, DIES) as of_the_dead,
        raw_sessions(cluster, SLEEPS) as of_the_sleeper,
    ):
        before = committed_of(party, DIES)
        began = time.monotonic()
        cluster.cluster.kill(DIES)
        check_commits(party, before)
        party.all_go_on(f"broker {DIES} is dead", GOES_ON_S)
        report(party, "kill -9", began)
        of_the_dead.go_on()
        cluster.cluster.start(DIES)
        cluster.wait_spread(*party.topics.values(), *of_the_dead.topics)
        party.all_go_on(f"broker {DIES} is back", GOES_ON_S)
        of_the_dead.go_on()
        of_the_dead.end()

        before = committed_of(party, SLEEPS)
        began = time.monotonic()
        cluster.cluster.pause(SLEEPS)
        stale.send_while_it_sleeps()
        cluster.cluster.wait_until_led(*party.topics.values(), *of_the_sleeper.topics, stale.topic)
        check_commits(party, before)
        stale.send_again()
        of_the_sleeper.go_on()
        cluster.cluster.resume(SLEEPS)
        stale.check()
        party.all_go_on(f"broker {SLEEPS} is awake", GOES_ON_S)
        report(party, "sleep and waking", began)
        cluster.wait_spread(*party.topics.values(), *of_the_sleeper.topics)
        of_the_sleeper.go_on()
        of_the_sleeper.end()

        stored = party.finish()
        party.assert_stored_once(stored, *PRODUCERS, in_order=True)
        party.assert_read_once_in_order(stored, *CONSUMERS)
        for client, consumer in party.consumers.items():
            assert consumer.taken_away() == [], f"{client} had to give partitions"


def committed_of(party: ClientParty, coordinator: int) -> dict[str, dict[Place, int]]:
    """Committed offsets of this coordinator's groups; there is one at least."""
    broker = party.cluster.brokers[coordinator]
    found = {
        group: committed_offsets(broker, group)
        for group in party.groups.values()
        if party.cluster.coordinator(group, asked=coordinator) == coordinator
    }
    assert found, f"broker {coordinator} coordinates nothing"
    return found


def check_commits(party: ClientParty, before: dict[str, dict[Place, int]]) -> None:
    """The new coordinator of each of the groups knows these commits, or later ones."""
    for group, offsets in before.items():
        others = set(party.cluster.cluster.live)
        new = wait_until(
            lambda: next((one for one in others if party.cluster.coordinator(group, one) in others), None),  # noqa: B023
            f"{group} has a new coordinator",
            GOES_ON_S,
        )
        assert new is not None
        coordinator = party.cluster.brokers[party.cluster.coordinator(group, new)]
        places = [place for topic in party.topics.values() for place in partitions_of(topic, PARTITIONS)]
        after = committed_offsets(coordinator, group, places)
        assert all(after[place] >= offset for place, offset in offsets.items()), (
            f"{group}: {offsets}, {after}"
        )


def report(party: ClientParty, what: str, began: float) -> None:
    """Print for each producer how long each partition was without an acknowledgement."""
    silences = party.silences(began, time.monotonic())
    told = {client: [f"{one:.2f}" for one in parts] for client, parts in silences.items()}
    print(f"{what}: seconds without an acknowledgement {told}")
