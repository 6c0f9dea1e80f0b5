"""A running broker looks for expired offsets by itself, and what it removed stays away over a restart."""

import pytest

from tests.integration.conftest import StartBroker
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.group_apis import TopicPartition, commit, committed, list_groups
from tests.support.topics import create_topic, delete_topic
from tests.support.waiting import wait_until

KEPT, GONE = "kept", "gone"
CHECK_INTERVAL_MS = 100

# The last version in which a client says how long its offsets are to be kept.
RETENTION_VERSION = 4
RETENTION_MS = 3000
NO_RETENTION = -1


@pytest.fixture
def broker(start_broker: StartBroker) -> KafscaleBroker:
    broker = start_broker(flush_interval_ms=0, offsets_retention_check_interval_ms=CHECK_INTERVAL_MS)
    for topic in (KEPT, GONE):
        create_topic(broker, topic, 2)
    return broker


def commit_as(broker: KafscaleBroker, group_id: str, *topics: str, retention_ms: int = NO_RETENTION) -> None:
    """Commit in the first partition of each topic, as a consumer does that only assigns."""
    with wire.connect(broker) as connection:
        wanted = {(topic, 0): 7 for topic in topics}
        answers = commit(connection, group_id, wanted, retention_ms=retention_ms, version=RETENTION_VERSION)
    assert set(answers.values()) == {0}


def groups(broker: KafscaleBroker) -> set[str]:
    with wire.connect(broker) as connection:
        return set(list_groups(connection))


def offsets(broker: KafscaleBroker, group_id: str) -> dict[TopicPartition, int]:
    with wire.connect(broker) as connection:
        return {partition: one.offset for partition, one in committed(connection, group_id).items()}


def test_groups_go_with_the_last_topic_that_they_have_offsets_of(broker: KafscaleBroker) -> None:
    commit_as(broker, "of both", KEPT, GONE)
    commit_as(broker, "of one", GONE)
    assert groups(broker) == {"of both", "of one"}
    delete_topic(broker, GONE)
    wait_until(lambda: groups(broker) == {"of both"}, "the group without topics is gone")
    create_topic(broker, GONE, 2)
    for _ in range(2):
        assert groups(broker) == {"of both"}
        assert offsets(broker, "of both") == {(KEPT, 0): 7}
        assert offsets(broker, "of one") == {}
        broker.restart()


def test_offsets_go_when_their_client_said(broker: KafscaleBroker) -> None:
    commit_as(broker, "without end", KEPT)
    commit_as(broker, "for a while", KEPT, retention_ms=RETENTION_MS)
    assert offsets(broker, "for a while") == {(KEPT, 0): 7}
    commit_as(broker, "changed its mind", KEPT, retention_ms=RETENTION_MS)
    commit_as(broker, "changed its mind", KEPT)
    commit_as(broker, "in part", GONE)
    commit_as(broker, "in part", KEPT, retention_ms=RETENTION_MS)
    broker.restart()
    wait_until(lambda: "for a while" not in groups(broker), "the group is gone")
    wait_until(lambda: offsets(broker, "in part") == {(GONE, 0): 7}, "the offset is gone")
    assert groups(broker) == {"without end", "changed its mind", "in part"}
    assert offsets(broker, "changed its mind") == offsets(broker, "without end") == {(KEPT, 0): 7}
