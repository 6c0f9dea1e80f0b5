"""AlterConfigs (33), versions 0 to 2: replaces a topic's configs by the listed ones.

v1: throttle time. v2: flexible. A key that is not listed returns to its default; IncrementalAlterConfigs (44)
changes single keys. A broker's configs are its settings, which are fixed while it runs.
"""

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import AlterConfigsResponse

from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.config_resources import ALTER_TIMEOUT_MS, alter_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Replace each resource's configs, or with validate-only check whether they are legal."""

    async def alter_topic(resource: Any) -> None:
        configs = {config.name: config.value for config in resource.configs}
        await broker.topics.alter_configs(
            resource.resource_name,
            lambda before: configs,
            timeout_ms=ALTER_TIMEOUT_MS,
            validate_only=message.validate_only,
        )

    results = await alter_each(broker, message.resources, alter_topic, _result, lambda config: False)
    return AlterConfigsResponse(responses=results)


def _result(resource: Any, code: ErrorCode, problem: str | None) -> Any:
    return AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code,
        error_message=problem,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
