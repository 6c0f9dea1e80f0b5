"""ConsumerGroupHeartbeat requests that Kafka refuses before it looks at the group, and our own limits."""

import uuid
from dataclasses import replace

import pytest

from kafscale.groups.consumer.request_checks import (
    check_heartbeat,
    check_member_id,
)
from kafscale.groups.consumer.requests import ConsumerHeartbeat
from kafscale.groups.modern.field_checks import MAX_SUBSCRIBED_TOPICS
from kafscale.protocol.error_codes import ErrorCode, KafkaError

ASSIGNORS = ("uniform", "range")
TOPIC = uuid.UUID(int=7)

JOIN = ConsumerHeartbeat(
    group_id="sales",
    member_id="m",
    member_epoch=0,
    instance_id=None,
    rack_id=None,
    rebalance_timeout_ms=300_000,
    subscribed_topic_names=("orders",),
    subscribed_topic_regex=None,
    server_assignor=None,
    owned={},
    client_id="c",
    client_host="127.0.0.1",
    may_describe=lambda name: True,
)
BEAT = replace(JOIN, member_epoch=3, rebalance_timeout_ms=-1, subscribed_topic_names=None, owned=None)

LEGAL = {
    "join": JOIN,
    "join without a member id": replace(JOIN, member_id=""),
    "join with a regex": replace(JOIN, subscribed_topic_names=None, subscribed_topic_regex="o.*"),
    "join without topics": replace(JOIN, subscribed_topic_names=()),
    "join with an empty regex": replace(JOIN, subscribed_topic_names=None, subscribed_topic_regex=""),
    "join with an assignor": replace(JOIN, server_assignor="range"),
    "heartbeat": BEAT,
    "heartbeat with partitions": replace(BEAT, owned={TOPIC: frozenset({0})}),
    "leave": replace(BEAT, member_epoch=-1),
    "static leave": replace(BEAT, member_epoch=-2, instance_id="i"),
}

ILLEGAL = {
    "GroupId can't be empty.": replace(JOIN, group_id=""),
    "InstanceId can't be empty.": replace(JOIN, instance_id="  "),
    "RackId can't be empty.": replace(BEAT, rack_id=""),
    "RebalanceTimeoutMs must be provided in first request.": replace(JOIN, rebalance_timeout_ms=-1),
    "TopicPartitions must be empty when (re-)joining.": replace(JOIN, owned=None),
    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.": replace(
        JOIN, subscribed_topic_names=None
    ),
    "InstanceId can't be null.": replace(BEAT, member_epoch=-2),
    "MemberEpoch is invalid.": replace(BEAT, member_epoch=-3),
    "MemberId can't be empty.": replace(BEAT, member_id=" "),
}


@pytest.mark.parametrize("request_", LEGAL.values(), ids=LEGAL)
def test_a_legal_request_passes(request_: ConsumerHeartbeat) -> None:
    check_heartbeat(request_, ASSIGNORS)


@pytest.mark.parametrize(("problem", "request_"), ILLEGAL.items(), ids=ILLEGAL)
def test_an_illegal_request_is_refused_in_words_of_kafka(problem: str, request_: ConsumerHeartbeat) -> None:
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(request_, ASSIGNORS)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, problem)


@pytest.mark.parametrize(
    "request_",
    [
        replace(JOIN, owned={TOPIC: frozenset({0})}),
        replace(BEAT, member_epoch=-1, member_id=""),
        replace(JOIN, subscribed_topic_names=tuple(map(str, range(MAX_SUBSCRIBED_TOPICS + 1)))),
        replace(BEAT, subscribed_topic_names=tuple(f"{n}{'x' * 30_000}" for n in range(20))),
        replace(JOIN, instance_id="i" * 32_767),
        replace(JOIN, member_id="i" * 32_767),
        replace(JOIN, rack_id="i" * 32_767),
    ],
    ids=["joins with partitions", "leaves as none", "topics", "bytes", "instance id", "member id", "rack id"],
)
def test_what_is_too_much_is_refused(request_: ConsumerHeartbeat) -> None:
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(request_, ASSIGNORS)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(refused.value.message) < 300


def test_an_unknown_assignor_is_refused_with_those_there_are() -> None:
    with pytest.raises(KafkaError) as refused:
        check_heartbeat(replace(BEAT, server_assignor="sticky" + "x" * 500), ASSIGNORS)
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.value.message.endswith("is not supported. Supported assignors: uniform, range.")
    assert len(refused.value.message) < 300


def test_a_client_makes_its_member_id_from_version_1_on() -> None:
    check_member_id("", 0)
    check_member_id("m", 1)
    with pytest.raises(KafkaError) as refused:
        check_member_id("", 1)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        "MemberId can't be empty.",
    )
