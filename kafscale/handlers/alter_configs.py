"""AlterConfigs (33), versions 0 to 2: replaces a topic's or a group's configs by the listed ones.

v1: throttle time. v2: flexible. A key that is not listed returns to its default; IncrementalAlterConfigs (44)
changes single keys. A broker's configs are its settings, which are fixed while it runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafscale.protocol.api_messages import AlterConfigsRequest, AlterConfigsResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.config_resources import Resource, ResourceType, alter_configs, alter_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Resource = AlterConfigsRequest.AlterConfigsResource
_Result = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace each resource's configs, or with validate-only check whether they are legal."""

    async def alter(kind: ResourceType, name: str, configs: Sequence[_Resource.AlterableConfig]) -> None:
        after = {config.name: config.value for config in configs if config.value is not None}
        await alter_configs(broker, kind, name, lambda before: after, validate_only=message.validate_only)

    results = await alter_each(
        broker,
        request,
        message.resources,
        alter,
        _result,
        lambda config: False,
        validate_only=bool(message.validate_only),
    )
    return AlterConfigsResponse(responses=results)


def _result(resource: Resource[_Resource.AlterableConfig], code: ErrorCode, problem: str | None) -> _Result:
    return _Result(
        error_code=code,
        error_message=problem,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
