"""ListGroups and DescribeGroups over a raw connection."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_apis import commit, describe, list_groups
from tests.support.group_wire import GROUP_ID_NOT_FOUND, NONE, RawGroup, raw_group, unique_instance
from tests.support.topics import unique_name

READ, DELETE, DESCRIBE = 3, 6, 8


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


# --- ListGroups


def test_a_group_is_listed_from_its_first_member_or_offset_on(group: RawGroup, new_topic: NewTopic) -> None:
    assert group.name not in list_groups(group.wire)
    (member,) = group.stable(1, protocol_type="connect")
    row = list_groups(group.wire)[group.name]
    assert (row.protocol_type, row.group_state, row.group_type) == ("connect", "Stable", "classic")
    assert member.leave() == NONE
    assert list_groups(group.wire)[group.name].group_state == "Empty"
    simple, topic = unique_name("group"), new_topic()
    commit(group.wire, simple, {(topic, 0): 1})
    row = list_groups(group.wire)[simple]
    assert (row.protocol_type, row.group_state, row.group_type) == ("", "Empty", "classic")


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_a_group(group: RawGroup, version: int) -> None:
    group.stable(1)
    row = list_groups(group.wire, version=version)[group.name]
    assert row.protocol_type == "consumer"
    if version >= 4:
        assert row.group_state == "Stable"
    if version >= 5:
        assert row.group_type == "classic"


@pytest.mark.parametrize("version", [4, 5])
def test_a_list_is_filtered_by_state(group: RawGroup, version: int) -> None:
    def is_listed(*states: str) -> bool:
        return group.name in list_groups(group.wire, states=states, version=version)

    (member,) = group.joined(1)
    assert is_listed("CompletingRebalance")
    assert not is_listed("Stable", "Empty", "PreparingRebalance", "Dead")
    group.sync_together([member])
    assert is_listed("Stable")
    assert is_listed("Empty", "stable")
    assert is_listed("STABLE")
    assert is_listed()
    assert not is_listed("Empty")
    assert not is_listed("no such state")
    pending = group.member()
    pending.register()
    member.send_join()
    group.await_state("PreparingRebalance")
    assert is_listed("PreparingRebalance")
    assert not is_listed("Stable")
    pending.leave()
    member.joined()
    assert member.leave() == NONE
    assert is_listed("Empty")


def test_a_list_is_filtered_by_type(group: RawGroup) -> None:
    def is_listed(*types: str, states: tuple[str, ...] = ()) -> bool:
        return group.name in list_groups(group.wire, types=types, states=states)

    group.stable(1)
    assert is_listed("classic")
    assert is_listed("Classic")
    assert is_listed("consumer", "classic")
    assert is_listed("classic", states=("Stable",))
    assert not is_listed("classic", states=("Empty",))
    assert not is_listed("consumer")
    assert not is_listed("no such type")


# --- DescribeGroups


@pytest.mark.parametrize("version", range(6))
def test_a_group_that_does_not_exist_is_dead(group: RawGroup, version: int) -> None:
    (described,) = describe(group.wire, [group.name], version)
    assert (described.error_code, described.group_id, described.group_state) == (NONE, group.name, "Dead")
    assert (described.protocol_type, described.protocol_data, list(described.members)) == ("", "", [])
    assert group.name not in list_groups(group.wire)


def test_from_version_6_a_group_that_does_not_exist_is_an_error(group: RawGroup) -> None:
    (described,) = describe(group.wire, [group.name], 6)
    assert (described.error_code, described.group_id) == (GROUP_ID_NOT_FOUND, group.name)
    assert (described.group_state, list(described.members)) == ("Dead", [])
    assert group.name in described.error_message


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_is_described_with_its_members(group: RawGroup, version: int) -> None:
    members = [group.member(instance=unique_instance()), group.member()]
    group.join_together(members)
    group.sync_together(members)
    (described,) = describe(group.wire, [group.name], version)
    assert (described.error_code, described.group_state) == (NONE, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    rows = {one.member_id: one for one in described.members}
    assert rows.keys() == {member.id for member in members}
    for member in members:
        row = rows[member.id]
        assert (row.client_id, row.client_host) == ("tests", "/127.0.0.1")
        assert bytes(row.member_metadata) == member.protocols["range"]
        assert bytes(row.member_assignment) == member.id.encode()
        if version >= 4:
            assert row.group_instance_id == member.instance


def test_unstable_group_hides_metadata_and_new_assignment(
    group: RawGroup,
) -> None:
    (member,) = group.joined(1)
    described = group.describe()
    assert (described.group_state, described.protocol_type) == ("CompletingRebalance", "consumer")
    assert described.protocol_data == ""
    (row,) = described.members
    assert (row.member_id, row.client_id, row.client_host) == (member.id, "tests", "/127.0.0.1")
    assert (bytes(row.member_metadata), bytes(row.member_assignment)) == (b"", b"")
    group.sync_together([member])
    pending = group.member()
    pending.register()
    member.send_join()
    described = group.await_state("PreparingRebalance")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "")
    assert [one.member_id for one in described.members] == [member.id]  # the pending one is no member
    assert bytes(described.members[0].member_metadata) == b""


def test_an_empty_group_keeps_its_protocol_type(group: RawGroup) -> None:
    (member,) = group.stable(1, protocol_type="connect")
    assert member.leave() == NONE
    described = group.describe()
    assert (described.error_code, described.group_state) == (NONE, "Empty")
    assert (described.protocol_type, described.protocol_data) == ("connect", "")
    assert list(described.members) == []


def test_several_groups_are_described_at_once(group: RawGroup, broker: Peer) -> None:
    group.stable(1)
    with raw_group(broker) as empty:
        (member,) = empty.stable(1)
        member.leave()
        absent = unique_name("absent")
        described = describe(group.wire, [absent, group.name, empty.name, ""])
    assert {one.group_id: (one.error_code, one.group_state) for one in described} == {
        absent: (NONE, "Dead"),
        group.name: (NONE, "Stable"),
        empty.name: (NONE, "Empty"),
        "": (NONE, "Dead"),
    }
    assert describe(group.wire, []) == []


@pytest.mark.parametrize("version", [3, 4, 5])
def test_operations_on_a_group_are_returned_on_request(group: RawGroup, version: int) -> None:
    group.stable(1)
    (described,) = describe(group.wire, [group.name], version)
    assert described.authorized_operations is None
    (described,) = describe(group.wire, [group.name], version, operations=True)
    assert described.authorized_operations >= {READ, DELETE, DESCRIBE}
