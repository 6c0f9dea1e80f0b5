"""The parts that the three config APIs share: kinds of resources, and the checks before any change."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafscale.formats.object_keys import topic_name_problem
from kafscale.protocol import acl_codes
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access
from kafscale.tasks.concurrently import for_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

ALTER_TIMEOUT_MS: Final = 20_000
"""The config APIs carry no timeout; this is less than clients wait for a reply."""

MAX_KEYS_LOGGED: Final = 10
"""Of a resource whose configs were altered."""

_MAX_INT_DIGITS: Final = 10


class Config(Protocol):
    """A config of a request."""

    @property
    def name(self) -> str:
        """Its key."""

    @property
    def value(self) -> str | None:
        """Its new value."""


C = TypeVar("C", bound=Config)
C_co = TypeVar("C_co", bound=Config, covariant=True)
Result = TypeVar("Result")


class Resource(Protocol[C_co]):
    """A resource of a request, with the configs to change."""

    @property
    def resource_type(self) -> int:
        """A `ResourceType`, or any other number."""

    @property
    def resource_name(self) -> str:
        """Empty: all of the type."""

    @property
    def configs(self) -> Sequence[C_co]:
        """In the client's order, as often as it names them."""


class ResourceType(IntEnum):
    """Kinds of resources with configs, by Kafka's numbers (`ConfigResource.Type`).

    Loggers and client metrics have none here.
    """

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def check_config_access(request: "RequestContext", operation: Operation, kind: int, name: str) -> None:
    """Raises `KafkaError` unless the client may read, or alter, the resource's configs.

    A type that no configs can have is not checked: there is another error for it.
    """
    match kind:
        case ResourceType.TOPIC:
            check_access(request, operation, acl_codes.ResourceType.TOPIC, name)
        case ResourceType.GROUP:
            check_access(request, operation, acl_codes.ResourceType.GROUP, name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            check_access(request, operation, acl_codes.ResourceType.CLUSTER, CLUSTER_NAME)


def check_broker_name(broker: "Broker", name: str) -> None:
    """Raises `KafkaError` INVALID_REQUEST for the name of another broker."""
    own = broker.settings.broker_id
    if not name.isdecimal() or len(name) > _MAX_INT_DIGITS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {quoted(name)}")
    if int(name) != own:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {own}, but received {quoted(name)}"
        )


def check_topic_name(name: str) -> None:
    """Raises `KafkaError` INVALID_REQUEST or INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


async def alter_each(
    broker: "Broker",
    request: "RequestContext",
    resources: Sequence[Resource[C]],
    alter_one: Callable[[ResourceType, str, Sequence[C]], Awaitable[None]],
    result: Callable[[Resource[C], ErrorCode, str | None], Result],
    null_is_legal: Callable[[C], bool],
    *,
    validate_only: bool,
) -> list[Result]:
    """Alter each topic and group of a request by `alter_one`; the results, in their order.

    `null_is_legal`: whether a config of the request may be without a value.
    """
    altered: dict[ResourceType, list[str]] = {ResourceType.TOPIC: [], ResourceType.GROUP: []}
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)

    async def alter(resource: Resource[C]) -> Result:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_configs(resource, null_is_legal)
            kind, name = resource.resource_type, resource.resource_name
            check_config_access(request, Operation.ALTER_CONFIGS, kind, name)
            match kind:
                case ResourceType.TOPIC | ResourceType.GROUP:
                    altered_kind = ResourceType(kind)
                    _check_name(altered_kind, name)
                    await alter_one(altered_kind, name, resource.configs)
                    names = ", ".join(quoted(config.name) for config in resource.configs[:MAX_KEYS_LOGGED])
                    altered[altered_kind].append(f"{name} ({names})")
                case ResourceType.BROKER:
                    # Deleting a key that is not set changes nothing: kafka-reassign-partitions does it.
                    changes = [config for config in resource.configs if not null_is_legal(config)]
                    _refuse_broker_configs(broker, resource, changes)
                case other:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")
        except KafkaError as error:
            return result(resource, error.code, error.message or None)
        return result(resource, ErrorCode.NONE, None)

    results = await for_each(resources, alter)
    if not validate_only:
        for kind, done in altered.items():
            what = f"{kind.name.lower()} configs altered"
            changed(request.access.principal, request.client_host, what, done)
    return results


def _check_name(kind: ResourceType, name: str) -> None:
    if kind is ResourceType.TOPIC:
        check_topic_name(name)
    elif not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")


async def alter_configs(
    broker: "Broker",
    kind: ResourceType,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    validate_only: bool,
) -> None:
    """Replace the own configs of a topic or a group by what `change` makes of them. Raises `KafkaError`."""
    alter = broker.group_config_updates.alter if kind is ResourceType.GROUP else broker.topics.alter_configs
    await alter(name, change, timeout_ms=ALTER_TIMEOUT_MS, validate_only=validate_only)


def _check_configs(resource: Resource[C], null_is_legal: Callable[[C], bool]) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [
        config.name for config in resource.configs if config.value is None and not null_is_legal(config)
    ]
    if without_value:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Null value not supported for : {', '.join(map(quoted, without_value))}",
        )


def _refuse_broker_configs(broker: "Broker", resource: Resource[C], changes: Sequence[C]) -> None:
    """Settings are fixed while a broker runs."""
    if resource.resource_name:
        check_broker_name(broker, resource.resource_name)
    if changes:
        names = ", ".join(quoted(config.name) for config in changes)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {names}. A broker takes them from its environment.",
        )
