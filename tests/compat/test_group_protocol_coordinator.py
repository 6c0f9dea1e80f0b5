"""FindCoordinator over a raw connection."""

from collections.abc import Iterator

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.compat.conftest import Peer
from tests.support.group_apis import GROUP_KEY, find_coordinator
from tests.support.group_wire import NONE, RawGroup, raw_group
from tests.support.topics import METADATA_VERSION, unique_name

INVALID_REQUEST = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
NO_NODE = (-1, "", -1)


@pytest.fixture
def group(broker: Peer) -> Iterator[RawGroup]:
    with raw_group(broker) as made:
        yield made


@pytest.mark.parametrize("version", range(5))
def test_the_coordinator_is_a_broker_of_the_cluster(group: RawGroup, broker: Peer, version: int) -> None:
    found = find_coordinator(group.wire, [group.name], version=version)[group.name]
    assert found.error_code == NONE
    assert (found.host, found.port) == (broker.host, broker.port)
    request = MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    brokers = group.wire.call(request, MetadataResponse, METADATA_VERSION).brokers
    assert (found.node_id, found.host, found.port) in [(one.node_id, one.host, one.port) for one in brokers]


def test_version_4_finds_the_coordinators_of_several_groups(group: RawGroup, broker: Peer) -> None:
    keys = [unique_name("group") for _ in range(5)]
    found = find_coordinator(group.wire, keys)
    assert list(found) == keys
    assert {(one.error_code, one.host, one.port) for one in found.values()} == {
        (NONE, broker.host, broker.port)
    }
    assert find_coordinator(group.wire, []) == {}


@pytest.mark.parametrize("version", range(5))
def test_the_group_without_a_name_has_a_coordinator(group: RawGroup, broker: Peer, version: int) -> None:
    found = find_coordinator(group.wire, [""], version=version)[""]
    assert (found.error_code, found.host, found.port) == (NONE, broker.host, broker.port)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("key_type", [2, 3, -1, 127])
def test_there_are_no_coordinators_of_other_kinds(group: RawGroup, version: int, key_type: int) -> None:
    found = find_coordinator(group.wire, [group.name], key_type, version)[group.name]
    assert found.error_code == INVALID_REQUEST
    assert (found.node_id, found.host, found.port) == NO_NODE
    # and the connection goes on
    assert find_coordinator(group.wire, [group.name], GROUP_KEY, version)[group.name].error_code == NONE
