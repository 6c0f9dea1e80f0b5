"""ApiVersions, DescribeCluster, DescribeLogDirs, the ACL APIs and UpdateFeatures, in every version."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from kafscale.cluster.new_topic import NewTopic
from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats.features import GROUP_VERSION, SEGMENT_FORMAT, SHARE_VERSION, TRANSACTION_VERSION
from kafscale.handlers import (
    api_versions,
    create_acls,
    delete_acls,
    describe_acls,
    describe_cluster,
    describe_log_dirs,
    update_features,
)
from kafscale.handlers.api_versions import VersionRange
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.messages import encode_response
from tests.support.control_plane import (
    CLUSTER_ID,
    TIMEOUT_MS,
    ControlPlane,
    ask,
    ask_for_frame,
    control_plane,
)

RANGES = [VersionRange(18, 0, 4), VersionRange(0, 0, 9)]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        yield plane


def listed(reply: Any) -> list[tuple[int, int, int]]:
    return [(one.api_key, one.min_version, one.max_version) for one in reply.api_keys]


@pytest.mark.parametrize("version", range(5))
async def test_api_versions(plane: ControlPlane, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="my-client", client_software_version="1.0.0-rc1")
    reply = await ask(plane, partial(api_versions.handle, RANGES), version, request)
    assert reply.error_code == 0
    assert listed(reply) == [(0, 0, 9), (18, 0, 4)]


@pytest.mark.parametrize("name", ["", "-client", "client.", "a b"])
async def test_client_software_that_kafka_refuses(plane: ControlPlane, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    _, frame = await ask_for_frame(plane, partial(api_versions.handle, RANGES), 3, request)
    # Length, correlation id, 42, no APIs, no throttling, no tags.
    assert frame == bytes.fromhex("0000000c00000007002a010000000000")


def test_a_version_that_is_not_served_is_answered_in_version_0() -> None:
    response = api_versions.unsupported_version_response(VersionRange(18, 0, 4))
    frame = encode_response(response, 0, 5)
    assert frame == bytes.fromhex("0000001000000005002300000001001200000004")
    assert listed(ApiVersionsResponse.decode(frame, version=0, header=True, framed=True)) == [(18, 0, 4)]


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster(plane: ControlPlane, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    reply = await ask(plane, describe_cluster.handle, version, request)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (0, CLUSTER_ID, 0)
    assert [(one.broker_id, one.host, one.port) for one in reply.brokers] == [(0, "broker.test", 9092)]
    assert reply.authorized_operations == {5, 7, 8, 9, 10, 11, 12}
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    reply = await ask(plane, describe_cluster.handle, version, request)
    assert reply.authorized_operations is None


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_endpoints_that_are_not_here(plane: ControlPlane, endpoint_type: int, code: ErrorCode) -> None:
    reply = await ask(plane, describe_cluster.handle, 1, DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (reply.error_code, reply.brokers) == (code, [])
    assert reply.error_message


def sizes(reply: Any) -> dict[tuple[str, int], int]:
    (directory,) = reply.results
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
    }


Asked = DescribeLogDirsRequest.DescribableLogDirTopic


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_log_dirs(plane: ControlPlane, version: int) -> None:
    for name in ("a", "b"):
        await plane.topics.create(NewTopic(name=name, partition_count=2), timeout_ms=TIMEOUT_MS)
    plane.logs.sizes = {("a", 0): 5, ("a", 1): 0, ("b", 1): 2**40}
    reply = await ask(plane, describe_log_dirs.handle, version, DescribeLogDirsRequest(topics=None))
    assert sizes(reply) == plane.logs.sizes
    assert reply.results[0].error_code == 0
    assert reply.results[0].log_dir == "/default"
    if version >= 4:
        assert (reply.results[0].total_bytes, reply.results[0].usable_bytes) == (-1, -1)
    asked = [
        Asked(topic="a", partitions=[1, 1, 2, -1]),
        Asked(topic="unknown", partitions=[0]),
        Asked(topic="b", partitions=[0]),
    ]
    reply = await ask(plane, describe_log_dirs.handle, version, DescribeLogDirsRequest(topics=asked))
    assert sizes(reply) == {("a", 1): 0}


@pytest.mark.parametrize("problem", [StoreUnavailableError("away"), CorruptDataError("x", "bad")])
async def test_sizes_that_cannot_be_read(plane: ControlPlane, problem: Exception) -> None:
    await plane.topics.create(NewTopic(name="a"), timeout_ms=TIMEOUT_MS)
    plane.logs.size_error = problem
    reply = await ask(plane, describe_log_dirs.handle, 4, DescribeLogDirsRequest(topics=None))
    assert reply.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert sizes(reply) == {}


@pytest.mark.parametrize("version", range(1, 4))
async def test_acls_need_an_authorizer(plane: ControlPlane, version: int) -> None:
    describe = DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    reply = await ask(plane, describe_acls.handle, version, describe)
    assert (reply.error_code, reply.resources) == (ErrorCode.SECURITY_DISABLED, [])
    creation = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    reply = await ask(plane, create_acls.handle, version, CreateAclsRequest(creations=[creation] * 2))
    assert [one.error_code for one in reply.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deletion = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="t",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    reply = await ask(plane, delete_acls.handle, version, DeleteAclsRequest(filters=[deletion]))
    assert [(one.error_code, one.matching_acls) for one in reply.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ]


FEATURE_VERSIONS = range(3)
LAST_VERSION_WITH_RESULTS = 1


async def finalize(plane: ControlPlane, version: int, level: int, **fields: Any) -> Any:
    """The reply. `upgrade_type` and `validate_only` are sent from version 1 on, `allow_downgrade` in version 0."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=SEGMENT_FORMAT,
        max_version_level=level,
        allow_downgrade=fields.get("allow_downgrade", False),
        upgrade_type=fields.get("upgrade_type", 1),
    )
    request = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS, feature_updates=[update], validate_only=fields.get("validate_only", False)
    )
    return await ask(plane, update_features.handle, version, request)


@pytest.mark.parametrize("version", FEATURE_VERSIONS)
async def test_finalizing_a_feature_level(plane: ControlPlane, version: int) -> None:
    for _ in range(2):  # the same level again is no error
        reply = await finalize(plane, version, 2)
        assert (reply.error_code, reply.error_message) == (0, None)
        if version <= LAST_VERSION_WITH_RESULTS:
            assert [(one.feature, one.error_code) for one in reply.results] == [(SEGMENT_FORMAT, 0)]
        assert plane.view.feature_level(SEGMENT_FORMAT) == 2


@pytest.mark.parametrize("version", FEATURE_VERSIONS)
async def test_levels_that_are_refused_leave_everything_as_it_was(plane: ControlPlane, version: int) -> None:
    reply = await finalize(plane, version, 3)
    assert reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert reply.error_message == (
        "The update failed for all features since the following feature had an error: Invalid update version 3 "
        "for feature kafscale.segment.format. Broker 0 only supports versions 1-2."
    )
    assert not reply.results
    assert plane.view.feature_level(SEGMENT_FORMAT) == 1


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("version", FEATURE_VERSIONS)
async def test_a_level_goes_down_by_no_means(plane: ControlPlane, version: int, level: int) -> None:
    await finalize(plane, version, 2)
    for fields in ({}, {"allow_downgrade": True}, {"upgrade_type": 2}, {"upgrade_type": 3}):
        reply = await finalize(plane, version, level, **fields)
        assert reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Level 2 is finalized" in reply.error_message
    assert plane.view.feature_level(SEGMENT_FORMAT) == 2


async def test_version_0_may_allow_a_downgrade_and_then_asks_for_one(plane: ControlPlane) -> None:
    reply = await finalize(plane, 0, 2, allow_downgrade=True)
    assert "Can't downgrade to a newer version." in reply.error_message
    # The others do not carry the field, nor the codec's default of it.
    assert (await finalize(plane, 1, 2, allow_downgrade=True)).error_code == 0


@pytest.mark.parametrize("version", FEATURE_VERSIONS[1:])
async def test_validating_a_level_writes_nothing(plane: ControlPlane, version: int) -> None:
    assert (await finalize(plane, version, 2, validate_only=True)).error_code == 0
    refusal = await finalize(plane, version, 3, validate_only=True)
    assert refusal.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert await plane.keys_under(keys.FEATURES) == []


@pytest.mark.parametrize("version", FEATURE_VERSIONS)
async def test_updates_of_very_many_features_are_refused_unread(plane: ControlPlane, version: int) -> None:
    updates = [
        UpdateFeaturesRequest.FeatureUpdateKey(
            feature=f"f{index}", max_version_level=0, allow_downgrade=True, upgrade_type=1
        )
        for index in range(10_000)
    ]
    request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates, validate_only=False)
    reply = await ask(plane, update_features.handle, version, request)
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert not reply.results


@pytest.mark.parametrize("version", FEATURE_VERSIONS)
async def test_an_update_of_nothing(plane: ControlPlane, version: int) -> None:
    request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[], validate_only=False)
    assert (await ask(plane, update_features.handle, version, request)).error_code == 0


@pytest.mark.parametrize("version", [3, 4])
async def test_api_versions_shows_supported_and_finalized_features(plane: ControlPlane, version: int) -> None:
    async def told() -> tuple[Any, ...]:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        reply = await ask(plane, partial(api_versions.handle, RANGES), version, request)
        return (
            [(one.name, one.min_version, one.max_version) for one in reply.supported_features],
            reply.finalized_features_epoch,
            [(one.name, one.min_version_level, one.max_version_level) for one in reply.finalized_features],
        )

    # A client of version 3 must not see that a range begins at 0 (KAFKA-17011).
    lowest = 0 if version >= 4 else 1
    supported = [
        (SEGMENT_FORMAT, 1, 2),
        (TRANSACTION_VERSION, lowest, 2),
        (GROUP_VERSION, lowest, 1),
        (SHARE_VERSION, lowest, 1),
    ]
    assert await told() == (supported, 0, [])
    await finalize(plane, 1, 2)
    revision = plane.view.finalized_features()[SEGMENT_FORMAT].revision
    assert revision > 0
    assert await told() == (supported, revision, [(SEGMENT_FORMAT, 2, 2)])
