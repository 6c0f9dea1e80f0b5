"""ListConfigResources (74), versions 0 and 1: the resources that DescribeConfigs describes (KIP-1142).

v0 is KIP-714's ListClientMetricsResources: client metrics subscriptions, of which there are none. v1: the client
names types, none for all; of groups it gets those that have configs. Kafka also lists the loggers of brokers, whose
levels are no configs here.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafscale.metadata import keys
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.config_resources import ResourceType
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Resource = ListConfigResourcesResponse.ConfigResource

_FIRST_VERSION_WITH_TYPES: Final = 1


def _topics(broker: "Broker") -> Iterable[str]:
    return [record.name for record in broker.view.topics()]


def _brokers(broker: "Broker") -> Iterable[str]:
    return [str(live.broker_id) for live in broker.view.brokers()]


def _groups(broker: "Broker") -> Iterable[str]:
    return sorted(keys.group_of_configs(key) for key in broker.view.group_configs.items())


def _none(broker: "Broker") -> Iterable[str]:
    return ()


_NAMES: Final[dict[int, Callable[["Broker"], Iterable[str]]]] = {
    ResourceType.TOPIC: _topics,
    ResourceType.BROKER: _brokers,
    ResourceType.BROKER_LOGGER: _none,
    ResourceType.CLIENT_METRICS: _none,
    ResourceType.GROUP: _groups,
}


async def handle(
    broker: "Broker", request: "RequestContext", message: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """The names of each requested type, or UNSUPPORTED_VERSION if there is no such type."""
    try:
        check_access(request, Operation.DESCRIBE_CONFIGS)
    except KafkaError as refusal:
        return ListConfigResourcesResponse(error_code=refusal.code, config_resources=[])
    asked: Iterable[int] = (ResourceType.CLIENT_METRICS,)
    if request.api_version >= _FIRST_VERSION_WITH_TYPES:
        asked = dict.fromkeys(message.resource_types or _NAMES)
    if any(kind not in _NAMES for kind in asked):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    resources = [
        _Resource(resource_name=name, resource_type=kind)
        for kind in asked
        async for name in in_turns(_NAMES[kind](broker))
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)
