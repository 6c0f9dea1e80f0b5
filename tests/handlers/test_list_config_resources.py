"""ListConfigResources: the names that DescribeConfigs takes, from hand-made requests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.handlers import list_config_resources
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask_with_bytes, control_plane
from tests.support.flexible_body import NO_TAGS, array

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPICS = [("aa", TOPIC), ("bb", TOPIC)]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        for name in ("bb", "aa"):
            await plane.topics.create(NewTopic(name=name, partition_count=1), timeout_ms=TIMEOUT_MS)
        yield plane


async def list_resources(plane: ControlPlane, version: int, *kinds: int) -> Any:
    types = array(bytes([kind]) for kind in kinds) if version >= 1 else b""
    return await ask_with_bytes(plane, list_config_resources.handle, 74, version, types + NO_TAGS)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([TOPIC], TOPICS),
        ([TOPIC, TOPIC], TOPICS),
        ([BROKER], [("0", BROKER)]),
        ([BROKER_LOGGER, CLIENT_METRICS, GROUP], []),
        ([], [*TOPICS, ("0", BROKER)]),
    ],
)
async def test_the_names_of_each_type_that_is_asked_for(
    plane: ControlPlane, kinds: list[int], expected: list[tuple[str, int]]
) -> None:
    reply = await list_resources(plane, 1, *kinds)
    assert reply.error_code == 0
    assert [(one.resource_name, one.resource_type) for one in reply.config_resources] == expected


@pytest.mark.parametrize("kind", [0, 1, 3, 99, 127])
async def test_an_unknown_type_refuses_the_request(plane: ControlPlane, kind: int) -> None:
    reply = await list_resources(plane, 1, TOPIC, kind)
    assert (reply.error_code, reply.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_version_0_lists_no_client_metrics(plane: ControlPlane) -> None:
    reply = await list_resources(plane, 0)
    assert (reply.error_code, reply.config_resources) == (0, [])
