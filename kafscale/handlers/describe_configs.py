"""DescribeConfigs (32), versions 1 to 4: the configs of topics, groups, and of this broker.

v1: sources and synonyms (KIP-226). v3: types and documentation (KIP-569). v4: flexible.

An answer is hundreds of times as long as its request. Kafka answers a resource as often as it is named; here it is
answered once, by configs that are encoded once for all topics with the same ones, up to `MAX_REPLY_BYTES`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kafscale.cluster.broker_configs import describe_broker
from kafscale.cluster.config_description import ConfigEntry, describe_topic
from kafscale.cluster.group_configs import describe_group
from kafscale.metadata import keys
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import DescribeConfigsRequest
from kafscale.protocol.describe_configs import (
    DescribedConfig,
    DescribedSynonym,
    encode_config,
    encode_describe_configs_response,
    encode_result,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.config_resources import (
    ResourceType,
    check_broker_name,
    check_config_access,
    check_topic_name,
)
from kafscale.settings.broker import Settings
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAX_REPLY_BYTES: Final = 32 * 1024 * 1024
"""More than 20,000 topics without documentation, and 3,000 with it and with synonyms."""

KEPT_CONFIGS: Final = 128
"""Different sets of topic configs whose encoded forms are kept, some kilobytes each."""

_RESOURCES_PER_TURN: Final = 8

Encoded = Mapping[str, bytes]
"""A resource's configs, encoded, by name and in their order."""

Resource = tuple[int, str]
"""A resource's type and name."""


class _Form(NamedTuple):
    """The parts of a request that the encoding of a config depends on."""

    version: int
    with_synonyms: bool
    with_documentation: bool


async def handle(broker: "Broker", request: "RequestContext", message: DescribeConfigsRequest) -> bytes:
    """Each resource's configs, all of them or the requested keys; unknown keys are skipped."""
    form = _Form(request.api_version, bool(message.include_synonyms), bool(message.include_documentation))
    own: list[Encoded] = []
    results: list[bytes] = []
    room_bytes = MAX_REPLY_BYTES
    async for resource, wanted in in_turns(_wanted(message.resources).items(), _RESOURCES_PER_TURN):
        result = _describe(broker, request, form, resource, wanted, own, room_bytes)
        room_bytes -= len(result)
        results.append(result)
    return encode_describe_configs_response(request.correlation_id, form.version, results)


def _wanted(resources: Sequence[DescribeConfigsRequest.DescribeConfigsResource]) -> dict[Resource, set[str]]:
    """Each resource once, with all requested keys; no keys request all."""
    wanted: dict[Resource, set[str]] = {}
    for asked in resources:
        resource, names = (asked.resource_type, asked.resource_name), asked.configuration_keys or ()
        known = wanted.get(resource)
        if known is None or not names:
            wanted[resource] = set(names)
        elif known:
            known.update(names)
    return wanted


def _describe(
    broker: "Broker",
    request: "RequestContext",
    form: _Form,
    resource: Resource,
    wanted: set[str],
    own: list[Encoded],
    room_bytes: int,
) -> bytes:
    """The encoded result. `own`: the broker's configs, once they were requested."""
    try:
        check_config_access(request, Operation.DESCRIBE_CONFIGS, *resource)
        encoded = _encoded(broker, form, resource, own)
        configs = [data for name, data in encoded.items() if not wanted or name in wanted]
        if sum(map(len, configs)) > room_bytes:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"An answer has room for {MAX_REPLY_BYTES} bytes of configs: describe fewer resources at once.",
            )
    except KafkaError as error:
        return encode_result(form.version, error.code, error.message or None, *resource)
    return encode_result(form.version, ErrorCode.NONE, None, *resource, configs)


def _encoded(broker: "Broker", form: _Form, resource: Resource, own: list[Encoded]) -> Encoded:
    kind, name = resource
    match kind:
        case ResourceType.TOPIC:
            check_topic_name(name)
            record = broker.view.topic(name)
            if record is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{quoted(name)}'.")
            return _encoded_topic(tuple(record.configs.items()), broker.settings, form)
        case ResourceType.BROKER if not name:
            return {}  # configs set for all brokers while they run: there are none
        case ResourceType.BROKER:
            check_broker_name(broker, name)
            if not own:
                registered = broker.view.broker(broker.settings.broker_id)
                own.append(_encode(describe_broker(broker.settings, registered), form))
            return own[0]
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            configs = broker.view.group_configs.get(keys.group_configs(name)) or {}
            return _encode(describe_group(configs, broker.settings), form)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")


@lru_cache(maxsize=KEPT_CONFIGS)
def _encoded_topic(configs: tuple[tuple[str, str], ...], settings: Settings, form: _Form) -> Encoded:
    return _encode(describe_topic(dict(configs), settings), form)


def _encode(entries: Sequence[ConfigEntry], form: _Form) -> Encoded:
    return {entry.name: encode_config(_described(entry, form), form.version) for entry in entries}


def _described(entry: ConfigEntry, form: _Form) -> DescribedConfig:
    return DescribedConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        source=entry.source,
        synonyms=[
            DescribedSynonym(synonym.name, synonym.value, synonym.source)
            for synonym in (entry.synonyms if form.with_synonyms else ())
        ],
        config_type=entry.config_type,
        documentation=entry.documentation if form.with_documentation else None,
    )
