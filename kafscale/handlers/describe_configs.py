"""DescribeConfigs (32), versions 1 to 4: the configs of topics and of this broker.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeConfigsResponse

from kafscale.handlers.config_resources import ResourceType, check_broker_name, check_topic_name
from kafscale.metadata.broker_configs import describe_broker
from kafscale.metadata.config_description import ConfigEntry, describe_topic
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult
_Synonym = _Config.DescribeConfigsSynonym


def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Each resource's configs, all of them or the keys asked for; keys that there are not are left out."""
    return DescribeConfigsResponse(results=[_describe(broker, message, asked) for asked in message.resources])


def _describe(broker: "Broker", message: Any, asked: Any) -> Any:
    code, problem, entries = ErrorCode.NONE, None, []
    try:
        wanted = set(asked.configuration_keys or ())
        entries = [
            _entry(message, entry) for entry in _entries(broker, asked) if not wanted or entry.name in wanted
        ]
    except KafkaError as error:
        code, problem = error.code, error.message or None
    return _Result(
        error_code=code,
        error_message=problem,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=entries,
    )


def _entries(broker: "Broker", asked: Any) -> Sequence[ConfigEntry]:
    name = asked.resource_name
    match asked.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(name)
            record = broker.view.topic(name)
            if record is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{quoted(name)}'.")
            return describe_topic(record.configs, broker.settings)
        case ResourceType.BROKER if not name:
            return ()  # what was set for all brokers while they run: nothing can be
        case ResourceType.BROKER:
            check_broker_name(broker, name)
            return describe_broker(broker.settings, broker.view.broker(broker.settings.broker_id))
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")


def _entry(message: Any, entry: ConfigEntry) -> Any:
    return _Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            _Synonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if message.include_synonyms else ())
        ],
        config_type=entry.config_type,
        documentation=entry.documentation if message.include_documentation else None,
    )
