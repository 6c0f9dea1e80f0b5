"""CreateTopics (19), versions 0 to 7.

v1: validate-only. v2: throttle time. v4: -1 asks for the default partitions and replicas (KIP-464). v5:
flexible; partitions, replicas and configs in the answer (KIP-525). v6: quota errors
(KIP-599). v7: topic ids in the answer (KIP-516).
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafscale.cluster.config_description import describe_topic
from kafscale.cluster.new_topic import UNSET, NewTopic
from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import CreateTopicsRequest, CreateTopicsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.serving.authorization import denied
from kafscale.serving.mutations import counted_mutations
from kafscale.settings.broker import Settings
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""As in Kafka (`MAX_PARTITIONS_PER_BATCH`): a request for more is refused as a whole."""

KEPT_CONFIGS: Final = 128
"""Different sets of topic configs whose answers are kept, some kilobytes each."""

_STRICT_SINCE: Final = 6

REPLICATION_FACTOR: Final = 1
"""In every answer, whatever was requested: Metadata shows the leader as the only replica."""

_Topic = CreateTopicsResponse.CreatableTopicResult


async def handle(
    broker: "Broker", request: "RequestContext", message: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create each topic, or with validate-only check whether it could be created."""
    counts = Counter(asked.name for asked in message.topics)
    asked_once = [asked for asked in message.topics if counts[asked.name] == 1]
    hidden = await _not_creatable(request, asked_once)
    allowed = [asked for asked in asked_once if asked.name not in hidden]
    if _partition_count(allowed, broker.settings) > MAX_PARTITIONS_PER_REQUEST:
        excess = "Excessively large number of partitions per request."
        refused = [_failed(name, ErrorCode.POLICY_VIOLATION, excess) async for name in in_turns(counts)]
        return CreateTopicsResponse(topics=refused)
    names = [asked.name for asked in allowed]
    secret = await denied(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, quiet=True)
    results = await for_each(
        allowed, lambda asked: _create(broker, request, message, asked, asked.name in secret)
    )
    if not message.validate_only:
        done = [result.name for result in results if result.error_code == ErrorCode.NONE]
        changed(request.access.principal, request.client_host, "topics created", done)
    results += [
        _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.") for name in hidden
    ]
    results += [
        _failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        async for name, count in in_turns(counts.items())
        if count > 1
    ]
    return CreateTopicsResponse(topics=results)


async def _not_creatable(
    request: "RequestContext", topics: Sequence[CreateTopicsRequest.CreatableTopic]
) -> frozenset[str]:
    """The names of topics that the client must not create."""
    if request.access.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        return frozenset()
    return await denied(request, Operation.CREATE, ResourceType.TOPIC, (asked.name for asked in topics))


def _partition_count(topics: Sequence[CreateTopicsRequest.CreatableTopic], settings: Settings) -> int:
    """The partitions of all requested topics together; an illegal number counts as none."""
    total = 0
    for asked in topics:
        if asked.assignments:
            total += len(asked.assignments)
        elif asked.num_partitions == UNSET:
            total += settings.auto_create_partitions
        else:
            total += max(0, asked.num_partitions)
    return total


async def _create(
    broker: "Broker",
    request: "RequestContext",
    message: CreateTopicsRequest,
    asked: CreateTopicsRequest.CreatableTopic,
    hides_configs: bool,
) -> _Topic:
    try:
        without_value = [config.name for config in asked.configs if config.value is None]
        if without_value:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {','.join(map(quoted, without_value))}",
            )
        with counted_mutations(request, _partition_count([asked], broker.settings), _STRICT_SINCE):
            record = await broker.topics.create(
                NewTopic(
                    name=asked.name,
                    partition_count=asked.num_partitions,
                    replication_factor=asked.replication_factor,
                    assignments=[(one.partition_index, one.broker_ids) for one in asked.assignments],
                    configs={
                        config.name: config.value for config in asked.configs if config.value is not None
                    },
                ),
                timeout_ms=message.timeout_ms,
                validate_only=message.validate_only,
            )
    except KafkaError as error:
        return _failed(asked.name, error.code, error.message)
    created = _created(record, broker.settings)
    if hides_configs:
        created.configs, created.topic_config_error_code = [], ErrorCode.TOPIC_AUTHORIZATION_FAILED
        created.num_partitions = created.replication_factor = UNSET
    return created


def _created(record: TopicRecord, settings: Settings) -> _Topic:
    return _Topic(
        name=record.name,
        topic_id=record.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=record.partition_count,
        replication_factor=REPLICATION_FACTOR,
        configs=_configs(tuple(record.configs.items()), settings),
    )


@lru_cache(maxsize=KEPT_CONFIGS)
def _configs(configs: tuple[tuple[str, str], ...], settings: Settings) -> list[_Topic.CreatableTopicConfigs]:
    """The answers of thousands of topics share their equal parts."""
    return [
        _Topic.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in describe_topic(dict(configs), settings)
    ]


def _failed(name: str, code: ErrorCode, message: str) -> _Topic:
    return _Topic(name=name, error_code=code, error_message=message or None, configs=[])
