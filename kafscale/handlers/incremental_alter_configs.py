"""IncrementalAlterConfigs (44), versions 0 and 1: sets, deletes, and adds to or takes from lists (KIP-339).

v1: flexible. Keys that are not named stay unchanged. A broker's configs are its settings, which are fixed
while it runs.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from kafscale.cluster.config_kinds import ConfigType, split_list
from kafscale.cluster.topic_config_table import ROWS_BY_NAME, TopicConfigRow
from kafscale.cluster.topic_configs import default_text
from kafscale.protocol.api_messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.config_resources import Resource, ResourceType, alter_configs, alter_each
from kafscale.settings.broker import Settings

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Change = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
_Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class Operation(IntEnum):
    """Operations on a key, by Kafka's numbers (`AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    broker: "Broker", request: "RequestContext", message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change each resource's configs, or with validate-only check whether the outcome would be legal."""

    async def alter(kind: ResourceType, name: str, configs: Sequence[_Change]) -> None:
        await alter_configs(
            broker,
            kind,
            name,
            lambda before: changed(before, configs, broker.settings, kind),
            validate_only=message.validate_only,
        )

    results = await alter_each(
        broker,
        request,
        message.resources,
        alter,
        _result,
        _may_be_null,
        validate_only=bool(message.validate_only),
    )
    return IncrementalAlterConfigsResponse(responses=results)


def changed(
    before: Mapping[str, str],
    changes: Sequence[_Change],
    settings: Settings,
    kind: ResourceType = ResourceType.TOPIC,
) -> Mapping[str, str]:
    """The configs after the changes. Raises `KafkaError` INVALID_REQUEST, INVALID_CONFIG."""
    after = dict(before)
    for change in changes:
        match change.config_operation:
            case Operation.SET:
                after[change.name] = change.value or ""  # null only with DELETE: see `_may_be_null`
            case Operation.DELETE:
                after.pop(change.name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                row = ROWS_BY_NAME.get(change.name) if kind is ResourceType.TOPIC else None
                after[change.name] = _changed_list(row, before, change, settings)
            case other:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {other}")
    return after


def _changed_list(
    row: TopicConfigRow | None, before: Mapping[str, str], change: _Change, settings: Settings
) -> str:
    """As in Kafka a key that is not set starts from its default; a repeated operation changes nothing."""
    operation = Operation(change.config_operation)
    if row is None or row.kind.config_type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {quoted(change.name)} because its type is not LIST.",
        )
    entries = list(split_list(before.get(change.name, default_text(row, settings))))
    named = split_list(change.value or "")
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*entries, *named]))
    return ",".join(entry for entry in entries if entry not in named)


def _may_be_null(config: _Change) -> bool:
    return config.config_operation == Operation.DELETE


def _result(resource: Resource[_Change], code: ErrorCode, problem: str | None) -> _Result:
    return _Result(
        error_code=code,
        error_message=problem,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
