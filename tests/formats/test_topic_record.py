"""The small records' stored bytes: what goes in comes out, and what is not legal is refused by name."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.topic_record import (
    decode_broker_record,
    decode_leader_record,
    decode_retired_epoch,
    decode_topic_record,
    encode_broker_record,
    encode_leader_record,
    encode_retired_epoch,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import (
    BrokerRecord,
    BrokerState,
    FeatureRange,
    LeaderRecord,
    TopicRecord,
    TopicState,
)

TOPIC_ID = uuid.UUID("0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6")
TOPIC = TopicRecord(name="orders", topic_id=TOPIC_ID, partition_count=6, configs={"retention.ms": "60000"})

numbers = st.integers(0, 2**31 - 1)
topics = st.builds(
    TopicRecord,
    name=st.text(min_size=1),
    topic_id=st.uuids(),
    partition_count=st.integers(0, 1_000_000),
    configs=st.dictionaries(st.text(), st.text()),
)


@given(topics, st.booleans(), numbers)
def test_topics_come_back(topic: TopicRecord, deleting: bool, broker_id: int) -> None:
    if deleting:
        topic = TopicRecord(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count,
            configs=topic.configs,
            state=TopicState.DELETING,
            deleting_broker_id=broker_id,
        )
    assert decode_topic_record(keys.topic(topic.name), encode_topic_record(topic)) == topic


feature_ranges = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: FeatureRange(*sorted(pair)))


@given(
    numbers,
    st.text(),
    numbers,
    st.none() | st.text(),
    st.sampled_from(BrokerState),
    st.dictionaries(st.text(), feature_ranges, max_size=3),
)
def test_brokers_come_back(
    broker_id: int,
    host: str,
    port: int,
    rack: str | None,
    state: BrokerState,
    features: dict[str, FeatureRange],
) -> None:
    broker = BrokerRecord(
        broker_id=broker_id, host=host, port=port, rack=rack, state=state, features=features
    )
    assert decode_broker_record("brokers/1", encode_broker_record(broker)) == broker


@given(numbers, numbers)
def test_leaders_and_epochs_come_back(broker_id: int, epoch: int) -> None:
    leader = LeaderRecord(broker_id=broker_id, leader_epoch=epoch)
    assert decode_leader_record("leaders/t/0", encode_leader_record(leader)) == leader
    assert decode_retired_epoch("retired/t", encode_retired_epoch(epoch)) == epoch


def test_the_bytes_are_those_of_the_format_page() -> None:
    assert encode_topic_record(TOPIC) == (
        b'{"version":1,"name":"orders","topic_id":"0f2c1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6",'
        b'"partition_count":6,"configs":{"retention.ms":"60000"},"state":"active"}'
    )
    assert encode_broker_record(BrokerRecord(broker_id=1, host="broker-1.example", port=9092)) == (
        b'{"version":1,"broker_id":1,"host":"broker-1.example","port":9092,"rack":null,"state":"running"}'
    )
    newer = BrokerRecord(
        broker_id=1, host="h", port=9, features={"kafscale.segment.format": FeatureRange(1, 2)}
    )
    assert encode_broker_record(newer) == (
        b'{"version":1,"broker_id":1,"host":"h","port":9,"rack":null,"state":"running",'
        b'"features":{"kafscale.segment.format":[1,2]}}'
    )
    assert encode_leader_record(LeaderRecord(broker_id=0, leader_epoch=3)) == (
        b'{"version":1,"broker_id":0,"leader_epoch":3}'
    )
    assert encode_retired_epoch(7) == b'{"version":1,"leader_epoch":7}'


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(encode_topic_record(TOPIC)), **fields}).encode()


@pytest.mark.parametrize(
    "change",
    [
        {"state": "asleep"},
        {"state": None},
        {"rack": 7},
        {"port": "9092"},
        {"features": None},
        {"features": ["a"]},
        {"features": {"a": 1}},
        {"features": {"a": [1]}},
        {"features": {"a": [2, 1]}},
        {"features": {"a": [-1, 1]}},
        {"features": {"a": [1, True]}},
        {"features": {"a": [1, "2"]}},
    ],
)
def test_what_is_not_a_broker_record(change: dict[str, object]) -> None:
    fields = json.loads(encode_broker_record(BrokerRecord(broker_id=1, host="host", port=9092)))
    with pytest.raises(CorruptDataError, match="brokers/1"):
        decode_broker_record("brokers/1", json.dumps({**fields, **change}).encode())


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnknownFormatVersionError, match="topics/orders: format version 2 is not known"):
        decode_topic_record("topics/orders", changed(version=2))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        changed(version=True),
        changed(partition_count="6"),
        changed(partition_count=True),
        changed(topic_id="0f2c"),
        changed(state="gone"),
        changed(state="deleting"),
        changed(configs={"retention.ms": 1}),
        changed(configs=[]),
        changed(name=None),
    ],
)
def test_what_is_not_a_topic_record(data: bytes) -> None:
    with pytest.raises(CorruptDataError, match="topics/orders"):
        decode_topic_record("topics/orders", data)
