"""kafka-python and aiokafka in consumer groups: what each of the two does in a way of its own."""

import asyncio
import queue
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError as AiokafkaCommitFailedError
from aiokafka.errors import OffsetMetadataTooLargeError as AiokafkaOffsetMetadataTooLargeError
from kafka import OffsetAndMetadata
from kafka.errors import (
    FencedInstanceIdError,
    InvalidSessionTimeoutError,
    OffsetMetadataTooLargeError,
)
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse

from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.group_members import AiokafkaMember, KafkaPythonMember
from tests.support.group_work import (
    RunningProducer,
    assert_none_skipped,
    committed_offsets,
    partitions_of,
    send_to_all,
    wait_for_shares,
    wait_until_handled,
)
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

OFFSET_COMMIT_VERSION = 7
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
FENCED_INSTANCE_ID = 82
LONGEST_METADATA = 4096  # Kafka's default of offset.metadata.max.bytes

pytestmark = IGNORED_WHILE_THEY_RUN
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def group() -> str:
    return unique_name("group")


def commit_as(broker: Peer, group: str, member: Any, topic: str, offset: int, **changed: Any) -> int:
    """The error with which a raw commit in a member's name is answered. `member`: its group metadata."""
    names = {
        "generation_id_or_member_epoch": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
    }
    row = OffsetCommitRequest.OffsetCommitRequestTopic
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            row(
                name=topic,
                partitions=[
                    row.OffsetCommitRequestPartition(
                        partition_index=0,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    )
                ],
            )
        ],
        **{**names, **changed},
    )
    with wire.connect(broker) as connection:
        reply = connection.call(request, OffsetCommitResponse, OFFSET_COMMIT_VERSION)
    code: int = reply.topics[0].partitions[0].error_code
    return code


# --- kafka-python


def test_commit_of_another_generation_is_refused(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(2)
    every = partitions_of(topic, 2)

    def joining() -> KafkaPythonMember:
        return KafkaPythonMember(broker.bootstrap, group, topic, enable_auto_commit=False)

    with joining() as member:
        wait_for_shares([member], every)
        old = member.call(lambda consumer: consumer.group_metadata())
        assert commit_as(broker, group, old, topic, 1) == 0
        with joining() as other:
            wait_for_shares([member, other], every)
            now = member.call(lambda consumer: consumer.group_metadata())
            assert now.member_id == old.member_id
            assert now.generation_id > old.generation_id
            assert commit_as(broker, group, old, topic, 2) == ILLEGAL_GENERATION
            ahead = now.generation_id + 1
            assert (
                commit_as(broker, group, now, topic, 3, generation_id_or_member_epoch=ahead)
                == ILLEGAL_GENERATION
            )
            assert commit_as(broker, group, now, topic, 4, member_id="nobody") == UNKNOWN_MEMBER_ID
            assert committed_offsets(broker, group) == {(topic, 0): 1}
            assert commit_as(broker, group, now, topic, 5) == 0
    assert committed_offsets(broker, group) == {(topic, 0): 5}


def test_kafka_pythons_older_member_of_an_instance_id_is_fenced(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    every = partitions_of(topic, 2)

    def joining() -> KafkaPythonMember:
        return KafkaPythonMember(
            broker.bootstrap, group, topic, group_instance_id="same", enable_auto_commit=False
        )

    with joining() as older:
        wait_for_shares([older], every)
        with joining() as newer:
            wait_for_shares([newer], every)
            with pytest.raises(FencedInstanceIdError):
                older.commit({(topic, 0): 1})
            newer.commit({(topic, 0): 2})
            known = newer.call(lambda consumer: consumer.group_metadata())
            assert commit_as(broker, group, known, topic, 3, member_id="other") == FENCED_INSTANCE_ID
    assert committed_offsets(broker, group) == {(topic, 0): 2}


def test_kafka_pythons_cooperative_members_keep_what_stays(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    every = partitions_of(topic, 4)

    def joining() -> KafkaPythonMember:
        return KafkaPythonMember(broker.bootstrap, group, topic, assignors=["cooperative-sticky"])

    with joining() as first, RunningProducer(broker, topic, 4) as producer:
        wait_for_shares([first], every)
        with joining() as second:
            wait_for_shares([first, second], every, fewest=2)
            given = second.assignment
            producer.wait_for_more()
        wait_for_shares([first], every)
        producer.stop()
        wait_until_handled([first, second], topic, producer.counts)
    assert first.changes_of("assigned") == [frozenset(every), given]
    assert first.changes_of("revoked")[0] == given
    assert second.changes_of("assigned") == [given]
    assert_none_skipped([first, second], topic, producer.counts)


def test_kafka_python_commits_metadata_up_to_4096_bytes(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    partition = kafka.TopicPartition(topic, 0)
    with KafkaPythonMember(
        broker.bootstrap, group, partitions=[(topic, 0)], enable_auto_commit=False
    ) as member:
        for metadata in ("von Hand — 🎈", "x" * LONGEST_METADATA):
            member.commit({(topic, 0): 7}, metadata)
            answer = member.call(lambda consumer: consumer.committed(partition, metadata=True))
            assert answer == OffsetAndMetadata(7, metadata, -1)
        with pytest.raises(OffsetMetadataTooLargeError):
            member.commit({(topic, 0): 8}, "x" * (LONGEST_METADATA + 1))
        assert member.committed((topic, 0), (topic, 1)) == [7, None]


def test_kafka_python_commits_in_the_background_and_calls_back(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    send_to_all(broker, topic, 1, 5)
    answers: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with KafkaPythonMember(broker.bootstrap, group, topic, enable_auto_commit=False) as member:
        wait_until_handled([member], topic, [5])
        member.call(
            lambda consumer: consumer.commit_async(
                callback=lambda offsets, answer: answers.put((offsets, answer))
            )
        )
        offsets, answer = answers.get(timeout=PATIENCE_SEC)
        assert not isinstance(answer, Exception)
        assert {tuple(partition): row.offset for partition, row in offsets.items()} == {(topic, 0): 5}
    assert committed_offsets(broker, group) == {(topic, 0): 5}


def test_kafka_python_session_timeout_below_least_is_refused(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    with KafkaPythonMember(broker.bootstrap, group, new_topic(), session_timeout_ms=400) as member:
        wait_until(lambda: member.failure, "the refusal")
        assert isinstance(member.failure, InvalidSessionTimeoutError)


def test_a_member_that_unsubscribes_leaves_its_group(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(2)
    every = partitions_of(topic, 2)
    with (
        KafkaPythonMember(broker.bootstrap, group, topic) as stays,
        KafkaPythonMember(broker.bootstrap, group, topic) as goes,
    ):
        wait_for_shares([stays, goes], every)
        goes.hold()
        goes.call(lambda consumer: consumer.unsubscribe())
        wait_until(lambda: stays.assignment == frozenset(every), "the other has all")


# --- aiokafka


async def test_aiokafkas_commit_metadata_is_read_back_by_its_admin(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    with AiokafkaMember(broker.bootstrap, group, partitions=[(topic, 0)], enable_auto_commit=False) as member:
        await asyncio.to_thread(member.commit, {(topic, 0): 7}, "von Hand — 🎈")
        with pytest.raises(AiokafkaOffsetMetadataTooLargeError):
            await asyncio.to_thread(member.commit, {(topic, 0): 8}, "x" * (LONGEST_METADATA + 1))
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    assert offsets == {
        aiokafka.TopicPartition(topic, 0): aiokafka.structs.OffsetAndMetadata(7, "von Hand — 🎈")
    }


def test_aiokafkas_commit_fails_when_it_is_no_member_any_more(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    deaf: dict[str, Any] = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 20_000}
    with AiokafkaMember(broker.bootstrap, group, topic, enable_auto_commit=False, **deaf) as member:
        wait_for_shares([member], [(topic, 0)])
        admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            (row,) = admin.describe_groups([group])[group]["members"]
            admin.remove_group_members(group, [kafka.admin.MemberToRemove(member_id=row["member_id"])])
        finally:
            admin.close()
        with pytest.raises(AiokafkaCommitFailedError):
            member.commit({(topic, 0): 1})
    assert committed_offsets(broker, group) == {}
