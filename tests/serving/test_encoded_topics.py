"""Kept encoded topics: never out of date, not made twice, and bounded."""

import uuid
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_broker_record, encode_leader_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import (
    BrokerRecord,
    BrokerState,
    Endpoint,
    LeaderRecord,
    ListenerName,
    TopicRecord,
    TopicState,
)
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.serving.encoded_topics import Asked, EncodedTopics
from kafscale.serving.read_replicas import ReadReplicas

ANYTHING: Final = Asked(12, ListenerName.PLAINTEXT, False)


def prefix_of(key: str) -> str:
    return key[: key.index("/") + 1]


class Picture:
    """A view that is told what a store holds, by changes or by snapshots."""

    def __init__(self) -> None:
        self.view = ClusterView("test")
        self._stored: dict[str, KeyValue] = {}
        self._revision = 0

    def tell(self, *puts: tuple[str, bytes | None], by_snapshot: bool = False) -> None:
        """Keys of one prefix with their values; None: the key is gone."""
        self._revision += 1
        changes: list[KeyValue | Delete] = []
        for key, value in puts:
            if value is None:
                self._stored.pop(key, None)
                changes.append(Delete(key))
            else:
                item = KeyValue(key=key, value=value, mod_revision=self._revision)
                self._stored[key] = item
                changes.append(item)
        prefix = prefix_of(puts[0][0])
        if by_snapshot:
            held = tuple(item for key, item in self._stored.items() if key.startswith(prefix))
            self.view.apply(prefix, Snapshot(items=held, revision=self._revision))
        else:
            self.view.apply(prefix, Changes(puts_and_deletes=tuple(changes), revision=self._revision))


def topic(name: str, partition_count: int, number: int = 0, deleting: bool = False) -> tuple[str, bytes]:
    record = TopicRecord(
        name=name,
        topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}/{number}"),
        partition_count=partition_count,
        state=TopicState.DELETING if deleting else TopicState.ACTIVE,
    )
    return keys.topic(name), encode_topic_record(record)


def leader(name: str, index: int, broker_id: int, epoch: int = 0) -> tuple[str, bytes]:
    record = LeaderRecord(broker_id=broker_id, leader_epoch=epoch)
    return keys.leader(name, index), encode_leader_record(record)


def live(
    broker_id: int,
    state: BrokerState = BrokerState.RUNNING,
    rack: str | None = None,
    external: Endpoint | None = None,
) -> tuple[str, bytes]:
    record = BrokerRecord(broker_id=broker_id, host="h", port=1, state=state, rack=rack, external=external)
    return keys.broker(broker_id), encode_broker_record(record)


def gone(put: tuple[str, bytes]) -> tuple[str, None]:
    return put[0], None


def told(encoded: EncodedTopics, picture: Picture, asked: Asked = ANYTHING) -> list[bytes]:
    return encoded.encode(picture.view.topics(), asked)


NAMES = st.sampled_from(["a", "b", "__consumer_offsets"])
IDS = st.integers(0, 2)
ENDPOINTS = st.none() | st.just(Endpoint("outside", 2))
PUTS = st.one_of(
    st.builds(topic, NAMES, st.integers(1, 4), st.integers(0, 1), st.booleans()),
    st.builds(leader, NAMES, st.integers(0, 4), IDS, st.integers(0, 1)),
    st.builds(live, IDS, st.sampled_from(BrokerState), st.sampled_from([None, "r", "s"]), ENDPOINTS),
)
EVENTS = st.tuples(PUTS | PUTS.map(gone), st.booleans())
ASKED = st.builds(
    Asked,
    st.sampled_from([0, 1, 5, 7, 9, 10, 12]),
    st.sampled_from([ListenerName.PLAINTEXT, ListenerName.EXTERNAL]),
    st.booleans(),
)


@given(
    st.lists(EVENTS, max_size=25),
    st.lists(ASKED, min_size=1, max_size=4, unique=True),
    st.sampled_from([0, 1000, 1 << 20]),
)
def test_topics_after_any_change_equal_a_fresh_encoding(
    events: list[tuple[tuple[str, bytes | None], bool]], asked: list[Asked], limit_bytes: int
) -> None:
    picture = Picture()
    kept = EncodedTopics(picture.view, ReadReplicas(picture.view), limit_bytes)
    for put, by_snapshot in events:
        picture.tell(put, by_snapshot=by_snapshot)
        for each in asked:
            assert told(kept, picture, each) == told(
                EncodedTopics(picture.view, ReadReplicas(picture.view)), picture, each
            )
        assert kept.used_bytes <= limit_bytes


def standing(topics: int = 2, partitions: int = 3) -> Picture:
    picture = Picture()
    picture.tell(live(0), live(1))
    for number in range(topics):
        name = f"t{number}"
        picture.tell(topic(name, partitions))
        picture.tell(*(leader(name, index, 0) for index in range(partitions)))
    return picture


def test_what_did_not_change_is_not_encoded_again() -> None:
    picture = standing()
    kept = EncodedTopics(picture.view, ReadReplicas(picture.view))
    first = told(kept, picture)
    assert [a is b for a, b in zip(first, told(kept, picture), strict=True)] == [True, True]
    picture.tell(leader("t1", 0, 1, 1))
    assert [a is b for a, b in zip(first, told(kept, picture), strict=True)] == [True, False]
    picture.tell(live(1, rack="r"))
    assert [a is b for a, b in zip(first, told(kept, picture), strict=True)] == [False, False]


def test_a_leader_announced_again_changes_no_answer() -> None:
    picture = standing()
    kept = EncodedTopics(picture.view, ReadReplicas(picture.view))
    first = told(kept, picture)
    picture.tell(leader("t0", 0, 0), by_snapshot=True)
    assert [a is b for a, b in zip(first, told(kept, picture), strict=True)] == [True, True]


def test_encoded_topics_are_bounded_and_deleted_ones_removed() -> None:
    picture = Picture()
    picture.tell(live(0))
    kept = EncodedTopics(picture.view, ReadReplicas(picture.view), limit_bytes=10_000)
    for number in range(200):
        one = topic("t", 3, number)
        picture.tell(one)
        assert len(told(kept, picture)) == 1
        picture.tell(gone(one))
    assert 0 < kept.used_bytes < 1_000  # one topic's
    for number in range(200):
        picture.tell(topic(f"t{number}", 3))
        told(kept, picture)
    assert 9_000 < kept.used_bytes <= 10_000
    assert len(told(kept, picture)) == 200
