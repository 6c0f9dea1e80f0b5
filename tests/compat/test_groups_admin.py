"""Consumer groups as the admin clients of librdkafka, kafka-python and aiokafka see and change them."""

from collections.abc import Iterator
from typing import Any

import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConsumerGroupDescription,
    ConsumerGroupListing,
)
from kafka import OffsetAndMetadata
from kafka.admin import MemberToRemove, OffsetSpec
from kafka.errors import (
    CommitFailedError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NoError,
    UnknownMemberIdError,
)

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_members import MEMBERS, KafkaPythonMember, LibrdkafkaMember
from tests.support.group_work import (
    committed_offsets,
    partitions_of,
    send_to_all,
    wait_for_shares,
)
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

TIMEOUT_S = PATIENCE_SEC

pytestmark = IGNORED_WHILE_THEY_RUN
__all__ = ["left_sockets_are_collected"]


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture
def librdkafka_admin(broker: Peer) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python_admin(broker: Peer) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def plain(offsets: dict[tuple[str, int], int]) -> dict[Any, OffsetAndMetadata]:
    """Offsets as kafka-python wants them."""
    return {kafka.TopicPartition(*one): OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()}


def error_of(futures: dict[str, Any]) -> KafkaError:
    """The error with which librdkafka's call for one group fails."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as raised:
        future.result(TIMEOUT_S)
    error: KafkaError = raised.value.args[0]
    return error


# --- librdkafka


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    described: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    return described


def listed(admin: AdminClient, **filters: Any) -> dict[str, ConsumerGroupListing]:
    result = admin.list_consumer_groups(**filters).result(TIMEOUT_S)
    assert not result.errors
    return {one.group_id: one for one in result.valid}


def test_librdkafka_describes_a_groups_members(
    broker: Peer, librdkafka_admin: AdminClient, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    with (
        LibrdkafkaMember(broker.bootstrap, group, topic, client_id="red") as red,
        LibrdkafkaMember(broker.bootstrap, group, topic, client_id="blue", group_instance_id="b") as blue,
    ):
        wait_for_shares([red, blue], partitions_of(topic, 3))
        described = describe(librdkafka_admin, group)
        assert described.group_id == group
        assert not described.is_simple_consumer_group
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        assert (described.coordinator.host, described.coordinator.port) == (broker.host, broker.port)
        members = {one.client_id: one for one in described.members}
        assert set(members) == {"red", "blue"}
        for name, member, instance in (("red", red, None), ("blue", blue, "b")):
            row = members[name]
            assert row.host == "/127.0.0.1"
            assert row.group_instance_id == instance
            assert row.member_id == member.call(lambda consumer: consumer.memberid())
            owned = {(one.topic, one.partition) for one in row.assignment.topic_partitions}
            assert owned == member.assignment


def test_librdkafka_lists_groups_by_state_and_type(
    broker: Peer, librdkafka_admin: AdminClient, new_topic: NewTopic, group: str
) -> None:
    topic, simple, empty = new_topic(), unique_name("simple"), unique_name("empty")
    with LibrdkafkaMember(broker.bootstrap, empty, topic) as member:
        wait_for_shares([member], [(topic, 0)])
    row = ConsumerGroupTopicPartitions(simple, [TopicPartition(topic, 0, 3)])
    librdkafka_admin.alter_consumer_group_offsets([row])[simple].result(TIMEOUT_S)
    with LibrdkafkaMember(broker.bootstrap, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        every = listed(librdkafka_admin)
        assert (every[group].state, every[group].type) == (
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CLASSIC,
        )
        assert (every[empty].state, every[simple].state) == (ConsumerGroupState.EMPTY,) * 2
        assert [every[one].is_simple_consumer_group for one in (group, empty, simple)] == [False, False, True]
        stable = listed(librdkafka_admin, states={ConsumerGroupState.STABLE})
        assert (group in stable, empty in stable, simple in stable) == (True, False, False)
        without_members = listed(librdkafka_admin, states={ConsumerGroupState.EMPTY})
        assert (group in without_members, empty in without_members, simple in without_members) == (
            False,
            True,
            True,
        )
        assert {group, empty, simple} <= set(listed(librdkafka_admin, types={ConsumerGroupType.CLASSIC}))
        assert group not in listed(librdkafka_admin, types={ConsumerGroupType.CONSUMER})


def test_librdkafka_finds_an_unknown_group_dead(librdkafka_admin: AdminClient, group: str) -> None:
    described = describe(librdkafka_admin, group)
    assert described.state == ConsumerGroupState.DEAD
    assert described.members == []
    assert group not in listed(librdkafka_admin)


def test_librdkafka_lists_and_alters_a_groups_offsets(
    broker: Peer, librdkafka_admin: AdminClient, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)

    def alter(*rows: TopicPartition) -> Any:
        wanted = [ConsumerGroupTopicPartitions(group, list(rows))]
        return librdkafka_admin.alter_consumer_group_offsets(wanted)

    def offsets(partitions: list[TopicPartition] | None) -> dict[int, tuple[int, str | None]]:
        wanted = [ConsumerGroupTopicPartitions(group, partitions)]
        result = librdkafka_admin.list_consumer_group_offsets(wanted)[group].result(TIMEOUT_S)
        return {one.partition: (one.offset, one.metadata) for one in result.topic_partitions}

    alter(TopicPartition(topic, 0, 5, "why"), TopicPartition(topic, 1, 6))[group].result(TIMEOUT_S)
    alter(TopicPartition(topic, 1, 2))[group].result(TIMEOUT_S)  # back is a way too
    assert offsets(None) == {0: (5, "why"), 1: (2, None)}
    assert offsets([TopicPartition(topic, 1), TopicPartition(topic, 2)]) == {
        1: (2, None),
        2: (OFFSET_INVALID, None),
    }
    with LibrdkafkaMember(broker.bootstrap, group, topic, enable_auto_commit=False) as member:
        wait_for_shares([member], partitions_of(topic, 3))
        refused = alter(TopicPartition(topic, 0, 9))[group].result(TIMEOUT_S)
        assert [one.error.code() for one in refused.topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]
    assert committed_offsets(broker, group) == {(topic, 0): 5, (topic, 1): 2}


def test_librdkafka_deletes_only_groups_without_members(
    broker: Peer, librdkafka_admin: AdminClient, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    send_to_all(broker, topic, 1, 3)
    with LibrdkafkaMember(broker.bootstrap, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        wait_until(lambda: committed_offsets(broker, group), "a commit")
        refused = error_of(librdkafka_admin.delete_consumer_groups([group]))
        assert refused.code() == KafkaError.NON_EMPTY_GROUP
    librdkafka_admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert group not in listed(librdkafka_admin)
    assert committed_offsets(broker, group) == {}
    again = error_of(librdkafka_admin.delete_consumer_groups([group]))
    assert again.code() == KafkaError.GROUP_ID_NOT_FOUND


# --- kafka-python


def test_kafka_python_describes_a_groups_members(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    with (
        KafkaPythonMember(broker.bootstrap, group, topic, client_id="red") as red,
        KafkaPythonMember(broker.bootstrap, group, topic, client_id="blue", group_instance_id="b") as blue,
    ):
        wait_for_shares([red, blue], partitions_of(topic, 3))
        described = python_admin.describe_groups([group])[group]
        assert described["error"] is None
        assert (described["group_state"], described["protocol_type"]) == ("Stable", "consumer")
        assert described["protocol_data"] == "range"
        members = {one["client_id"]: one for one in described["members"]}
        assert set(members) == {"red", "blue"}
        for name, member, instance in (("red", red, None), ("blue", blue, "b")):
            row = members[name]
            assert (row["client_host"], row["group_instance_id"]) == ("/127.0.0.1", instance)
            assert row["member_id"] == member.call(lambda consumer: consumer.group_metadata()).member_id
            assert row["member_metadata"]["topics"] == [topic]
            owned = {
                (one["topic"], partition)
                for one in row["member_assignment"]["assigned_partitions"]
                for partition in one["partitions"]
            }
            assert owned == member.assignment


def test_kafka_python_lists_groups_by_state_and_type(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    topic, simple = new_topic(), unique_name("simple")
    python_admin.alter_group_offsets(simple, plain({(topic, 0): 3}))

    def rows(**filters: Any) -> dict[str, tuple[str, str, str]]:
        return {
            one["group_id"]: (one["protocol_type"], one["group_state"], one["group_type"])
            for one in python_admin.list_groups(**filters)
        }

    with KafkaPythonMember(broker.bootstrap, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        assert rows()[group] == ("consumer", "Stable", "classic")
        assert rows()[simple] == ("", "Empty", "classic")
        stable = rows(states_filter=["Stable"])
        assert (group in stable, simple in stable) == (True, False)
        empty = rows(states_filter=["Empty", "Dead"])
        assert (group in empty, simple in empty) == (False, True)
        assert {group, simple} <= set(rows(types_filter=["classic"]))
        assert group not in rows(types_filter=["share"])


def test_kafka_python_finds_no_unknown_group(python_admin: Any, group: str) -> None:
    described = python_admin.describe_groups([group])[group]
    assert (described["group_state"], described["members"]) == ("Dead", [])
    assert group not in {one["group_id"] for one in python_admin.list_groups()}
    assert python_admin.list_group_offsets(group) == {group: {}}
    with pytest.raises(GroupIdNotFoundError):
        python_admin.delete_group_offsets(group, [kafka.TopicPartition("any", 0)])


def test_kafka_python_administers_a_groups_offsets(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    send_to_all(broker, topic, 3, 10)
    zero, one, two = (kafka.TopicPartition(topic, partition) for partition in range(3))
    altered = python_admin.alter_group_offsets(
        group, {zero: OffsetAndMetadata(5, "why", -1), one: OffsetAndMetadata(6, "", -1)}
    )
    assert altered == {zero: NoError, one: NoError}
    assert python_admin.list_group_offsets(group) == {
        group: {zero: OffsetAndMetadata(5, "why", -1), one: OffsetAndMetadata(6, "", -1)}
    }
    asked = python_admin.list_group_offsets({group: [one, two], "nobody": [zero]})
    assert asked == {
        group: {one: OffsetAndMetadata(6, "", -1), two: OffsetAndMetadata(-1, "", -1)},
        "nobody": {zero: OffsetAndMetadata(-1, "", -1)},
    }
    reset = python_admin.reset_group_offsets(
        group, {zero: OffsetSpec.LATEST, one: OffsetSpec.EARLIEST, two: 4}
    )
    assert {partition: row["offset"] for partition, row in reset.items()} == {zero: 10, one: 0, two: 4}
    assert committed_offsets(broker, group) == {(topic, 0): 10, (topic, 1): 0, (topic, 2): 4}
    assert python_admin.delete_group_offsets(group, [zero, one]) == {zero: NoError, one: NoError}
    assert committed_offsets(broker, group) == {(topic, 2): 4}


def test_kafka_python_cannot_change_subscribed_offsets(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    read, unread = new_topic(), new_topic()
    python_admin.alter_group_offsets(group, plain({(read, 0): 0, (unread, 0): 7}))
    with KafkaPythonMember(broker.bootstrap, group, read) as member:
        wait_for_shares([member], [(read, 0)])
        partitions = [kafka.TopicPartition(read, 0), kafka.TopicPartition(unread, 0)]
        assert python_admin.delete_group_offsets(group, partitions) == {
            partitions[0]: GroupSubscribedToTopicError,
            partitions[1]: NoError,
        }
        refused = python_admin.alter_group_offsets(group, plain({(read, 0): 5}))
        assert refused == {partitions[0]: UnknownMemberIdError}
    assert committed_offsets(broker, group) == {(read, 0): 0}


def test_kafka_python_deletes_only_groups_without_members(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    topic, other, absent = new_topic(), unique_name("other"), unique_name("absent")
    python_admin.alter_group_offsets(other, plain({(topic, 0): 3}))
    with KafkaPythonMember(broker.bootstrap, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        assert python_admin.delete_groups([group, other, absent]) == {
            group: "NonEmptyGroupError",
            other: "OK",
            absent: "GroupIdNotFoundError",
        }
    assert committed_offsets(broker, other) == {}
    assert python_admin.delete_groups([group]) == {group: "OK"}


def test_admin_removal_frees_partitions_of_a_static_member(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    with (
        KafkaPythonMember(broker.bootstrap, group, topic) as stays,
        KafkaPythonMember(broker.bootstrap, group, topic, group_instance_id="static") as static,
    ):
        wait_for_shares([stays, static], partitions_of(topic, 3))
        static.leave()
        member = MemberToRemove(group_instance_id="static")
        assert list(python_admin.remove_group_members(group, [member]).values()) == [NoError]
        wait_for_shares([stays], partitions_of(topic, 3))  # long before the session timeout
        again = python_admin.remove_group_members(group, [member])
        assert list(again.values()) == [UnknownMemberIdError]


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_commit_of_member_removed_by_admin_is_refused(
    broker: Peer, python_admin: Any, new_topic: NewTopic, group: str, client: str
) -> None:
    topic = new_topic()
    deaf: dict[str, Any] = {
        "session_timeout_ms": 60_000,
        "max_poll_interval_ms": 60_000,
        "heartbeat_interval_ms": 20_000,
    }
    with MEMBERS[client](broker.bootstrap, group, topic, enable_auto_commit=False, **deaf) as member:
        wait_for_shares([member], [(topic, 0)])
        (row,) = python_admin.describe_groups([group])[group]["members"]
        members = [MemberToRemove(member_id=row["member_id"]), MemberToRemove(member_id="nobody")]
        assert python_admin.remove_group_members(group, members) == {
            row["member_id"]: NoError,
            "nobody": UnknownMemberIdError,
        }
        with pytest.raises((KafkaException, CommitFailedError)) as raised:
            member.commit({(topic, 0): 1})
        if client == "librdkafka":
            assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert committed_offsets(broker, group) == {}


# --- aiokafka


async def test_aiokafka_lists_and_describes_groups_and_their_offsets(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    with LibrdkafkaMember(
        broker.bootstrap, group, topic, client_id="seen", enable_auto_commit=False
    ) as member:
        wait_for_shares([member], partitions_of(topic, 2))
        member.commit({(topic, 0): 3})
        await admin.start()
        try:
            assert (group, "consumer") in {tuple(one)[:2] for one in await admin.list_consumer_groups()}
            (reply,) = await admin.describe_consumer_groups([group])
            (row,) = reply.groups
            assert row[:5] == (0, group, "Stable", "consumer", "range")
            assert [one[1:3] for one in row[5]] == [("seen", "/127.0.0.1")]
            (unknown,) = await admin.describe_consumer_groups(["nobody"])
            assert unknown.groups[0][:3] == (0, "nobody", "Dead")
            offsets = await admin.list_consumer_group_offsets(group)
        finally:
            await admin.close()
    assert {(*partition,): row.offset for partition, row in offsets.items()} == {(topic, 0): 3}
